#include "launcher/control/group_diagnosis.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/progress/disagreement.h"

namespace ddprun {
namespace {

using Age = RankProgress::Age;
using State = RankOperation::State;

// Several report intervals: a rank that has waited for this time has reported it, and so have the ranks it waits for.
constexpr Age waiting_threshold = std::chrono::seconds(3);
constexpr std::size_t max_listed = 8;

// Increases whenever a rank enters or leaves an operation.
std::uint64_t position_of(const RankRecord& record) {
  return 2 * record.sequence + (record.inside ? 1 : 0);
}
std::uint64_t position_in(std::uint64_t sequence) {
  return 2 * sequence + 1;
}

std::string name_of_rank(std::size_t rank, const RankProgress& progress) {
  if (!progress.record) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (pid {} on host {})", rank, progress.record->pid, progress.record->host);
}

std::string age_of(Age age) {
  return fmt::format("{:.1f} s", static_cast<double>(age.count()) / 1000);
}

std::string title(const RankOperation& operation) {
  if (operation.transfer()) return describe(operation.description);
  return fmt::format("#{}, {}", operation.sequence, describe(operation.description));
}

std::string join_some(const std::vector<std::string>& texts) {
  const std::vector<std::string> listed(
      texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(std::min(texts.size(), max_listed)));
  auto text = fmt::format("{}", fmt::join(listed, "; "));
  if (texts.size() > listed.size()) text += fmt::format("; and {} more", texts.size() - listed.size());
  return text;
}

const RankOperation* collective(const RankRecord& record, std::uint64_t sequence) {
  for (const auto& operation : record.operations)
    if (!operation.transfer() && operation.sequence == sequence) return &operation;
  return nullptr;
}

// The location of a rank that others wait for.
std::string location_text(const RankProgress& progress) {
  const auto& record = *progress.record;
  std::string text;
  if (record.left) {
    text = "it has left the group";
  } else if (!record.operation) {
    text = "it has not called any operation yet";
  } else if (record.inside) {
    const auto* now = collective(record, record.sequence);
    text = fmt::format("it is in #{}, {}", record.sequence, describe(*record.operation));
    if (now) text += ", for " + age_of(progress.since(*now));
  } else {
    const auto* last = collective(record, record.sequence - 1);
    text = fmt::format("it is between operations; its last, #{}, {}, ended", record.sequence - 1,
                       describe(*record.operation));
    if (last) text += fmt::format(" {} ago", age_of(progress.since(*last)));
  }
  if (progress.report_age >= waiting_threshold)
    text += fmt::format(", according to its report of {} ago", age_of(progress.report_age));
  if (!progress.process.empty()) text += "; its process: " + progress.process;
  return text;
}

// Several operations may be in progress at once and end in any order; a rank counts as being in the oldest one.
bool is_oldest(const RankRecord& record, const RankOperation& operation) {
  return record.inside && record.sequence == operation.sequence;
}

bool has_entered(const RankRecord& record, std::uint64_t sequence) {
  const auto* operation = collective(record, sequence);
  return sequence < record.sequence || (operation && operation->state != State::submitted);
}

// A rank that has been in an operation for longer than the threshold.
struct Waiting {
  std::size_t rank = 0;
  const RankOperation* operation = nullptr;
  Age since{};
};

std::vector<Waiting> find_waiting(const GroupProgress& group, bool transfers) {
  std::vector<Waiting> waiting;
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) {
    const auto& progress = group.ranks[rank];
    if (!progress.record || progress.record->left) continue;
    for (const auto& operation : progress.record->operations) {
      const auto since = progress.since(operation);
      if (operation.transfer() != transfers || operation.state != State::started || since < waiting_threshold) continue;
      if (transfers || is_oldest(*progress.record, operation)) waiting.push_back({rank, &operation, since});
    }
  }
  return waiting;
}

std::string missing_text(const GroupProgress& group) {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank)
    if (!group.ranks[rank].record) names.push_back(name_of_rank(rank, group.ranks[rank]));
  if (names.empty()) return "";
  return fmt::format("not all {} ranks have joined the group; missing: {}", group.ranks.size(), join_some(names));
}

// The number of ranks that are in this operation, and for how long.
std::string waiting_text(const std::vector<Waiting>& waiting, std::uint64_t sequence) {
  std::size_t count = 0;
  Age longest{};
  for (const auto& each : waiting) {
    if (each.operation->sequence != sequence) continue;
    ++count;
    longest = std::max(longest, each.since);
  }
  return fmt::format("{} rank{} wait{} in it, for up to {}", count, count == 1 ? "" : "s", count == 1 ? "s" : "",
                     age_of(longest));
}

// The text for ranks whose operations of one number differ; empty if none do.
std::string disagreement_in(const GroupProgress& group, std::uint64_t sequence) {
  std::vector<RankCall> calls;
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) {
    const auto& record = *group.ranks[rank].record;
    if (record.inside && record.operation && record.sequence == sequence)
      calls.push_back({name_of_rank(rank, group.ranks[rank]), *record.operation});
  }
  return disagreement_text(sequence, calls);
}

// The ranks furthest behind among those that have not entered the operation in which others wait. Ranks that wait for
// these are not the cause.
std::vector<std::size_t> find_late(const GroupProgress& group, std::uint64_t newest_waiting) {
  auto least = position_in(newest_waiting);
  for (const auto& rank : group.ranks) least = std::min(least, position_of(*rank.record));
  std::vector<std::size_t> late;
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) {
    const auto position = position_of(*group.ranks[rank].record);
    if (position == least && position < position_in(newest_waiting)) late.push_back(rank);
  }
  return late;
}

std::string lateness_text(const GroupProgress& group, const std::vector<Waiting>& waiting,
                          const std::vector<std::size_t>& late) {
  // The first operation that these ranks have not entered and in which others wait.
  const auto position = position_of(*group.ranks[late.front()].record);
  const RankOperation* missed = nullptr;
  for (const auto& each : waiting) {
    const bool ahead = position_in(each.operation->sequence) > position;
    if (ahead && (!missed || each.operation->sequence < missed->sequence)) missed = each.operation;
  }
  std::vector<std::string> texts;
  for (const auto rank : late) {
    const auto& progress = group.ranks[rank];
    const auto* how = has_entered(*progress.record, missed->sequence) ? "is behind" : "has not entered it";
    texts.push_back(fmt::format("{} {}: {}", name_of_rank(rank, progress), how, location_text(progress)));
  }
  return fmt::format("operation {}: {}; {}", title(*missed), join_some(texts), waiting_text(waiting, missed->sequence));
}

std::string slow_text(const GroupProgress& group, const std::vector<Waiting>& waiting, const RankOperation& operation) {
  std::vector<std::string> abnormal;
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) {
    const auto& progress = group.ranks[rank];
    if (!progress.process.empty() || progress.report_age >= waiting_threshold)
      abnormal.push_back(fmt::format("{}: {}", name_of_rank(rank, progress), location_text(progress)));
  }
  return fmt::format("operation {}: all ranks have entered it; {}; {}", title(operation),
                     waiting_text(waiting, operation.sequence),
                     abnormal.empty() ? "the transport is slow or broken" : join_some(abnormal));
}

std::string transfers_text(const GroupProgress& group, const std::vector<Waiting>& waiting) {
  std::vector<std::string> texts;
  for (const auto& each : waiting)
    texts.push_back(fmt::format("{} by {}, for {}", describe(each.operation->description),
                                name_of_rank(each.rank, group.ranks[each.rank]), age_of(each.since)));
  return "no matching call for " + join_some(texts);
}

std::string quiet_text(const GroupProgress& group) {
  std::uint64_t newest = 0;
  for (const auto& rank : group.ranks) newest = std::max(newest, position_of(*rank.record));
  if (newest == 0) return "no rank has called an operation yet";
  return fmt::format("no operation has taken longer than {:.0f} s so far; the newest is #{}",
                     std::chrono::duration<double>(waiting_threshold).count(), (newest - 1) / 2);
}

}  // namespace

std::string diagnose(const GroupProgress& group) {
  if (auto text = missing_text(group); !text.empty()) return text;
  const auto waiting = find_waiting(group, false);
  if (waiting.empty()) {
    const auto transfers = find_waiting(group, true);
    return transfers.empty() ? quiet_text(group) : transfers_text(group, transfers);
  }
  const auto newest = std::max_element(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) {
    return a.operation->sequence < b.operation->sequence;
  });
  const auto late = find_late(group, newest->operation->sequence);
  if (!late.empty()) return lateness_text(group, waiting, late);
  if (auto text = disagreement_in(group, newest->operation->sequence); !text.empty()) return text;
  return slow_text(group, waiting, *newest->operation);
}

}  // namespace ddprun
