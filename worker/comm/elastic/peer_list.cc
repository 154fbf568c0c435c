#include "worker/comm/elastic/peer_list.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include <fmt/core.h>

#include "common/error.h"
#include "common/log.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds departure_timeout{2};

GroupFailure failure_from(const std::optional<std::string>& text) {
  return text ? decode_group_failure(*text) : GroupFailure{};
}

bool names_as_lost(const GroupFailure& failure, int rank) {
  return std::find(failure.lost.begin(), failure.lost.end(), rank) != failure.lost.end();
}

ElasticMember member(Store& store, const PeerList& peer_list, int rank, const std::string& cause, Deadline deadline) {
  return {peer_list.name_of(rank), rank, decode_join_record(store.get(peer_list.joined_key(rank), deadline)).process,
          cause};
}

// gone: what the member's own key says, which comes first: of several members that died at once, the group's failure
// names only one.
std::optional<ElasticMember> gone_member(Store& store, const PeerList& peer_list, int rank,
                                         const std::optional<std::string>& gone, const GroupFailure& failure,
                                         Deadline deadline) {
  if (gone) return member(store, peer_list, rank, *gone, deadline);
  if (!names_as_lost(failure, rank)) return std::nullopt;
  auto silent = member(store, peer_list, rank, failure.message, deadline);
  silent.may_run = true;
  return silent;
}

}  // namespace

std::optional<int> PeerList::rank_of(const std::string& name) const {
  const auto found = std::find(members.begin(), members.end(), name);
  if (found == members.end()) return std::nullopt;
  return static_cast<int>(found - members.begin());
}

void set_last_will(Store& store, const std::string& key, const std::string& text, Deadline deadline) {
  try {
    store.set_will(key, text, deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
}

void report_failure(Store& store, const std::string& group, const GroupFailure& failure, Deadline deadline) noexcept
    try {
  store.compare_set(group + "failure", "", encode(failure), deadline);
} catch (const Error& error) {
  log::debug("cannot report a failure to the other ranks: {}", error.what());
}

std::string encode(const JoinRecord& record) {
  return fmt::format("{}\n{}", record.last_generation ? std::to_string(*record.last_generation) : "", record.process);
}

JoinRecord decode_join_record(std::string_view text) {
  const auto line = text.substr(0, text.find('\n'));
  JoinRecord record;
  record.process = text.substr(std::min(line.size() + 1, text.size()));
  std::uint64_t generation = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), generation);
  if (error == std::errc() && end == line.data() + line.size()) record.last_generation = generation;
  return record;
}

std::vector<StoreCall> calls_of_gone(const PeerList& peer_list, int rank) {
  return {FindCall{peer_list.gone_key(rank)}, FindCall{peer_list.group + "failure"}};
}

bool tell_of_gone(std::span<const std::optional<std::string>> results, int rank) {
  return results[0] || names_as_lost(failure_from(results[1]), rank);
}

std::optional<ElasticMember> find_gone(Store& store, const PeerList& peer_list, int rank, Deadline deadline) {
  const auto results = store.execute(calls_of_gone(peer_list, rank), deadline);
  return gone_member(store, peer_list, rank, results[0], failure_from(results[1]), deadline);
}

std::vector<ElasticMember> find_lost(Store& store, const PeerList& peer_list, Deadline deadline) {
  const int size = static_cast<int>(peer_list.members.size());
  std::vector<StoreCall> calls{FindCall{peer_list.group + "failure"}};
  for (int rank = 0; rank < size; ++rank) calls.emplace_back(FindCall{peer_list.gone_key(rank)});
  const auto results = store.execute(calls, deadline);  // one round trip for all
  const auto failure = failure_from(results[0]);
  std::vector<ElasticMember> lost;
  for (int rank = 0; rank < size; ++rank)
    if (auto gone = gone_member(store, peer_list, rank, results[static_cast<std::size_t>(rank) + 1], failure, deadline))
      lost.push_back(*std::move(gone));
  return lost;
}

namespace {

using JoinRecords = std::vector<JoinRecord>;  // by rank

JoinRecords join_records_of(Store& store, const PeerList& peer_list, Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < static_cast<int>(peer_list.members.size()); ++rank)
    keys.push_back(peer_list.joined_key(rank));
  JoinRecords records;
  for (const auto& text : store.multi_get(keys, deadline)) records.push_back(decode_join_record(text));
  return records;
}

// Returns whether the same process continues under that name: another process may have taken the name.
bool continues(const std::string& name, const PeerList& before, const PeerList& now, const JoinRecords& joined) {
  const auto rank = now.rank_of(name);
  return rank && joined[static_cast<std::size_t>(*rank)].last_generation >= before.generation;
}

std::vector<ElasticMember> gone_since(Store& store, const PeerList& before, const PeerList& now,
                                      const JoinRecords& joined, Deadline deadline) {
  std::vector<ElasticMember> gone;
  const auto lost = find_lost(store, before, deadline);
  for (int rank = 0; rank < static_cast<int>(before.members.size()); ++rank) {
    if (continues(before.name_of(rank), before, now, joined)) continue;
    const auto known = std::find_if(lost.begin(), lost.end(), [&](const auto& each) { return each.rank == rank; });
    const auto dropped = fmt::format("it is not a member of generation {}", now.generation);
    gone.push_back(known != lost.end() ? *known : member(store, before, rank, dropped, deadline));
  }
  return gone;
}

std::vector<ElasticMember> newcomers_to(const PeerList& now, const JoinRecords& joined) {
  std::optional<std::uint64_t> last;
  for (const auto& each : joined) last = std::max(last, each.last_generation);
  std::vector<ElasticMember> newcomers;
  for (int rank = 0; rank < static_cast<int>(joined.size()); ++rank) {
    const auto& [last_generation, process] = joined[static_cast<std::size_t>(rank)];
    if (!last || last_generation != last) newcomers.push_back({now.name_of(rank), rank, process});
  }
  return newcomers;
}

}  // namespace

MembershipChange find_change(Store& store, const PeerList* before, const PeerList& now, Deadline deadline) {
  const auto joined = join_records_of(store, now, deadline);
  return {before ? gone_since(store, *before, now, joined, deadline) : std::vector<ElasticMember>(),
          newcomers_to(now, joined)};
}

DepartureNotice::~DepartureNotice() {
  if (key_.empty()) return;
  try {
    const auto soon = Deadline::in(departure_timeout);
    store_->set(key_, "it left", soon);
    store_->clear_will(soon);
  } catch (const Error& error) {
    log::debug("cannot tell the other members that this one left: {}", error.what());
  }
}

void DepartureNotice::move_to(const PeerList& peer_list, int rank, Deadline deadline) {
  key_ = peer_list.gone_key(rank);
  set_last_will(*store_, key_, "its process died or its connection broke", deadline);
}

}  // namespace ddprun::comm
