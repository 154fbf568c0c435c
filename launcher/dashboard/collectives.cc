#include "launcher/dashboard/collectives.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "launcher/control/group_diagnosis.h"

namespace ddprun::dashboard {
namespace {

constexpr std::size_t most_rows = 12;
// Others wait for a rank if it is faster by this share of the time that the collective takes them.
constexpr double least_wait = 0.1;
constexpr double shortest_wait = 10e-6;  // seconds

// The number of bytes on each link for each byte of the buffer, or of one rank's part of it.
double bus_factor(std::string_view kind, std::size_t ranks) {
  const auto n = static_cast<double>(ranks);
  if (kind == "allreduce") return 2 * (n - 1) / n;
  if (kind == "allgather" || kind == "reduce_scatter" || kind == "all_to_all" || kind == "gather" || kind == "scatter")
    return n - 1;
  return 1;
}

struct RankTiming {
  const RankRecord* record = nullptr;
  OperationTiming timing;
};

// One kind includes the sizes within a power of two.
using Kind = std::pair<std::string, int>;
std::map<Kind, std::vector<RankTiming>> timings_by_kind(const GroupProgress& group) {
  std::map<Kind, std::vector<RankTiming>> kinds;
  for (const auto& rank : group.ranks) {
    if (!rank.record) continue;
    for (const auto& timing : rank.record->timings)
      kinds[{timing.kind, std::bit_width(timing.bytes)}].push_back({&*rank.record, timing});
  }
  return kinds;
}

double mean(const OperationTiming& timing) {
  return timing.seconds / static_cast<double>(timing.count);
}

double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Finds the fastest of several ranks, if it is much faster than the others.
void name_slowest(CollectiveView& view, const std::vector<RankTiming>& ranks, const RankOf& rank_of) {
  if (ranks.size() < 2) return;
  std::vector<double> means;
  for (const auto& rank : ranks) means.push_back(mean(rank.timing));
  const auto quickest = std::min_element(means.begin(), means.end());
  const double quickest_mean = *quickest;
  const auto& record = *ranks[static_cast<std::size_t>(quickest - means.begin())].record;
  means.erase(quickest);
  const double others = middle(std::move(means));
  if (others - quickest_mean < std::max(least_wait * others, shortest_wait)) return;
  view.slowest = rank_of(record);
  view.wait = others - quickest_mean;
}

CollectiveView view_of(const GroupProgress& group, const Kind& kind, const std::vector<RankTiming>& ranks,
                       const RankOf& rank_of) {
  CollectiveView view{.group = group.name, .operation = kind.first};
  std::vector<double> medians;
  double bytes = 0;
  for (const auto& [record, timing] : ranks) {
    view.count += static_cast<std::int64_t>(timing.count);
    view.seconds += timing.seconds;
    bytes += static_cast<double>(timing.bytes) / static_cast<double>(ranks.size());
    medians.push_back(timing.median);
  }
  const double transfer = *std::min_element(medians.begin(), medians.end());
  view.bytes = static_cast<std::int64_t>(bytes);
  view.median = middle(medians);
  if (transfer > 0 && bytes > 0 && group.ranks.size() > 1 && kind.first != "barrier")
    view.bus_bandwidth = bytes * bus_factor(kind.first, group.ranks.size()) / transfer;
  name_slowest(view, ranks, rank_of);
  return view;
}

// A record is up to a second old.
bool waits(const GroupProgress& group) {
  constexpr std::chrono::seconds long_enough(3);
  return std::any_of(group.ranks.begin(), group.ranks.end(), [&](const RankProgress& rank) {
    return rank.record && !rank.record->left &&
           std::any_of(rank.record->operations.begin(), rank.record->operations.end(), [&](const auto& operation) {
             return operation.state == RankOperation::State::started && rank.since(operation) > long_enough;
           });
  });
}

GroupPlace place_in(const GroupProgress& group, const RankProgress& rank) {
  const auto& record = *rank.record;
  GroupPlace place{.group = group.name, .place = record.label, .inside = record.inside};
  const auto newest = record.newest();
  if (!newest || !record.operation) return place;
  place.operation = fmt::format("#{} {}", *newest, describe(*record.operation));
  for (const auto& operation : record.operations)
    if (!operation.transfer() && operation.sequence == *newest) place.since = rank.since(operation);
  return place;
}

}  // namespace

std::vector<GroupProgress> living_groups(std::vector<GroupProgress> groups) {
  constexpr std::chrono::seconds long_ago(6);  // a living rank reports something each second
  const auto is_silent = [&](const GroupProgress& group) {
    return std::none_of(group.ranks.begin(), group.ranks.end(),
                        [&](const auto& rank) { return rank.record && rank.report_age < long_ago; });
  };
  if (!std::all_of(groups.begin(), groups.end(), is_silent)) std::erase_if(groups, is_silent);
  return groups;
}

std::vector<CollectiveView> collectives_of(const std::vector<GroupProgress>& groups, const RankOf& rank_of) {
  std::vector<CollectiveView> views;
  for (const auto& group : groups)
    for (const auto& [kind, ranks] : timings_by_kind(group)) views.push_back(view_of(group, kind, ranks, rank_of));
  std::stable_sort(views.begin(), views.end(),
                   [](const auto& one, const auto& other) { return one.seconds > other.seconds; });
  views.resize(std::min(views.size(), most_rows));
  return views;
}

std::vector<std::string> waits_of(const std::vector<GroupProgress>& groups) {
  std::vector<std::string> lines;
  for (const auto& group : groups)
    if (waits(group)) lines.push_back(fmt::format("{}: {}", group.name, diagnose(group)));
  return lines;
}

std::vector<GroupPlace> places_of(const std::vector<GroupProgress>& groups, const std::string& host, std::int64_t pid) {
  std::vector<GroupPlace> places;
  for (const auto& group : groups)
    for (const auto& rank : group.ranks)
      if (rank.record && rank.record->pid == pid && rank.record->host == host) places.push_back(place_in(group, rank));
  return places;
}

}  // namespace ddprun::dashboard
