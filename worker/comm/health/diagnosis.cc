#include "ddprun/worker/comm/health/diagnosis.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

namespace ddprun::comm {
namespace {

std::string name_rank(std::size_t rank, const RankRecord& record) {
  return fmt::format("rank {} ({})", rank, record.identity());
}

std::string circumstance(const Stall& stall) {
  if (stall.partner != -1) return fmt::format("{} of rank {}", stall.operation, stall.rank);
  return fmt::format("{} #{}", stall.operation, stall.sequence);
}

void append(std::string& list, const std::string& item) {
  if (!list.empty()) list += "; ";
  list += item;
}

// Ranks that a stalled operation depends on: all others, or the partner of a send or recv.
bool concerns(const Stall& stall, std::size_t rank) {
  const int r = static_cast<int>(rank);
  return r != stall.rank && (stall.partner < 0 || r == stall.partner);
}

// Whose heartbeats stood still; a text only when there are such.
Verdict name_silent(const Stall& stall, const std::vector<Observation>& observations, double seconds) {
  Verdict verdict{Errc::peer_lost, ""};
  for (std::size_t r = 0; r < observations.size(); ++r) {
    const auto& [before, now] = observations[r];
    if (!concerns(stall, r) || (now && (now->left || !before || before->beat != now->beat))) continue;
    verdict.lost.push_back(static_cast<int>(r));
    append(verdict.message, now ? fmt::format("{} has given no sign of life for {:.1f} s: it is frozen or cut off",
                                              name_rank(r, *now), seconds)
                                : fmt::format("rank {} has given no sign of life at all", r));
  }
  return verdict;
}

// What it called in the place of that collective, if it is known and another one. Ranks may have gone on since; those
// of which each rank knows only its own parts have no common text, but are never gone on from.
std::optional<std::string> other_call(const Stall& stall, const RankRecord& record) {
  if (record.newest() == stall.sequence) {
    if (record.signature == stall.signature) return std::nullopt;
    return record.operation;
  }
  for (const auto& each : record.operations)
    if (!each.transfer && each.sequence == stall.sequence && !stall.transport.empty() && each.text != stall.operation)
      return each.text;
  return std::nullopt;
}

std::string position(const RankRecord& record) {
  if (record.left) return "has left the group";
  if (record.inside) return fmt::format("is still in {} #{}", record.operation, record.sequence);
  std::string messages;
  for (const auto& each : record.operations)
    if (each.transfer) messages += (messages.empty() ? "" : ", ") + each.text;
  const auto last = record.operation.empty() ? "" : fmt::format("{} #{}", record.operation, record.sequence - 1);
  if (messages.empty())
    return last.empty() ? "has not called anything yet" : "is between operations; its last was " + last;
  return last.empty() ? "is in " + messages : fmt::format("is in {}, after {}", messages, last);
}

// Whether two sends, or two receives, are of the same two ranks and tag: their texts differ in nothing but the
// elements.
bool same_way(std::string_view one, std::string_view other) {
  const auto verb = [](std::string_view text) { return text.substr(0, text.find(' ')); };
  const auto way = [](std::string_view text) { return text.substr(std::min(text.find(" rank "), text.size())); };
  return verb(one) == verb(other) && way(one) == way(other);
}

// Of a send, the counterpart as a rank calls it that receives from any; of a recv, the counterpart itself.
std::string counterpart_from_any(const Stall& stall) {
  const auto source = fmt::format(" from rank {} ", stall.rank);
  auto text = stall.counterpart;
  if (const auto at = text.find(source); at != std::string::npos) text.replace(at, source.size(), " from any rank ");
  return text;
}

bool in_counterpart(const Stall& stall, const RankRecord& partner) {
  const auto from_any = counterpart_from_any(stall);
  return std::any_of(partner.operations.begin(), partner.operations.end(), [&](const auto& each) {
    return each.transfer && (each.text == stall.counterpart || each.text == from_any);
  });
}

// What a rank tells of its sends to that one.
std::string sends_to(int rank, const RankRecord& record) {
  const auto destination = fmt::format(" to rank {} with tag ", rank);
  std::string sends;
  for (const auto& each : record.operations) {
    if (!each.transfer || each.text.find(destination) == std::string::npos) continue;
    sends += (sends.empty() ? "" : ", ") + each.text;
  }
  return sends;
}

// Of a receive from any rank: who sends to its rank, or else where the others are, the first of them.
std::string name_possible_senders(const Stall& stall, const std::vector<Observation>& observations) {
  constexpr std::size_t most = 4;
  std::string senders, others;
  std::size_t elsewhere = 0;
  for (std::size_t r = 0; r < observations.size(); ++r) {
    const auto& now = observations[r].now;
    if (!concerns(stall, r) || !now) continue;
    if (in_counterpart(stall, *now))
      return fmt::format("{} is in {}: the network between them is slow or broken", name_rank(r, *now),
                         stall.counterpart);
    if (const auto sends = sends_to(stall.rank, *now); !sends.empty())
      append(senders, fmt::format("{} is in {}", name_rank(r, *now), sends));
    else if (elsewhere++ < most)
      append(others, fmt::format("{} {}", name_rank(r, *now), position(*now)));
  }
  if (!senders.empty()) return fmt::format("no rank tells of {}: {}", stall.counterpart, senders);
  if (elsewhere > most) append(others, fmt::format("{} more elsewhere", elsewhere - most));
  return fmt::format("no rank tells of a send to rank {}: {}", stall.rank, others);
}

// The ranks furthest behind: those that wait for them are not to blame.
std::string name_late(const Stall& stall, const std::vector<Observation>& observations) {
  const auto progress = [](const RankRecord& record) { return 2 * record.sequence + (record.inside ? 1 : 0); };
  std::uint64_t least = 2 * stall.sequence + 1;
  for (const auto& [before, now] : observations) {
    if (now) least = std::min(least, progress(*now));
  }
  std::string names;
  for (std::size_t r = 0; r < observations.size(); ++r) {
    const auto& now = observations[r].now;
    if (!concerns(stall, r) || !now || progress(*now) != least || least >= 2 * stall.sequence + 1) continue;
    append(names, fmt::format("{} has not entered it: it {}", name_rank(r, *now), position(*now)));
  }
  return names;
}

// One or more with a space between two; nothing for any other text.
std::optional<std::vector<int>> numbers_in(std::string_view line) {
  std::vector<int> numbers;
  while (true) {
    const auto word = line.substr(0, line.find(' '));
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    numbers.push_back(number);
    if (word.size() == line.size()) return numbers;
    line.remove_prefix(word.size() + 1);
  }
}

}  // namespace

// The code and the ranks that are lost in the first line.
std::string encode(const Verdict& verdict) {
  const auto* const space = verdict.lost.empty() ? "" : " ";
  return fmt::format("{}{}{}\n{}", static_cast<int>(verdict.code), space, fmt::join(verdict.lost, " "),
                     verdict.message);
}

Verdict decode_verdict(std::string_view text) {
  const auto line = text.substr(0, text.find('\n'));
  const auto numbers = numbers_in(line);
  if (!numbers || numbers->front() < 0 || numbers->front() > static_cast<int>(Errc::internal))
    return {Errc::peer_lost, std::string(text)};
  return {static_cast<Errc>(numbers->front()),
          std::string(text.substr(std::min(line.size() + 1, text.size()))),
          {numbers->begin() + 1, numbers->end()}};
}

std::optional<Verdict> blame_disagreeing(const Stall& stall, const std::vector<std::optional<RankRecord>>& records) {
  if (stall.partner != -1) return std::nullopt;
  std::string names;
  for (std::size_t r = 0; r < records.size(); ++r) {
    if (!concerns(stall, r) || !records[r]) continue;
    if (const auto call = other_call(stall, *records[r]))
      append(names, fmt::format("{} calls {}", name_rank(r, *records[r]), *call));
  }
  if (names.empty()) return std::nullopt;
  return Verdict{Errc::mismatch, fmt::format("the ranks disagree on operation #{}: rank {} calls {}; {}",
                                             stall.sequence, stall.rank, stall.operation, names)};
}

std::optional<Verdict> blame_partner(const Stall& stall, const RankRecord& partner) {
  if (stall.partner < 0 || stall.sequence == 0) return std::nullopt;
  for (const auto& each : partner.operations) {
    if (!each.transfer || each.sequence != stall.sequence || !same_way(each.text, stall.counterpart)) continue;
    if (each.text == stall.counterpart) continue;
    return Verdict{Errc::mismatch, fmt::format("rank {} calls {}, {} calls {}", stall.rank, stall.operation,
                                               name_rank(static_cast<std::size_t>(stall.partner), partner), each.text)};
  }
  return std::nullopt;
}

std::optional<Verdict> blame_leavers(const Stall& stall, const std::vector<std::optional<RankRecord>>& records) {
  std::string names;
  bool others_are_here = false;
  for (std::size_t r = 0; r < records.size(); ++r) {
    const bool left = concerns(stall, r) && records[r] && records[r]->left;
    const bool had_done_its_part = stall.partner == -1 && left && records[r]->sequence > stall.sequence;
    if (left && !had_done_its_part) append(names, name_rank(r, *records[r]));
    others_are_here = others_are_here || (concerns(stall, r) && !left);
  }
  if (names.empty() || (stall.partner == Stall::anybody && others_are_here)) return std::nullopt;
  return Verdict{Errc::peer_lost,
                 fmt::format("{} left the group while {} was in progress", names, circumstance(stall))};
}

Verdict blame_silent(int rank, const std::vector<Observation>& observations, double seconds,
                     const std::function<std::string(int rank)>& describe) {
  Verdict verdict{Errc::peer_lost, ""};
  for (std::size_t r = 0; r < observations.size(); ++r) {
    const auto& [before, now] = observations[r];
    if (static_cast<int>(r) == rank || !before || !now || now->left || before->beat != now->beat) continue;
    const auto known = describe(static_cast<int>(r));
    append(verdict.message, fmt::format("{} has given no sign of life for {:.1f} s: {}; it {}", name_rank(r, *now),
                                        seconds, known.empty() ? "it is frozen or cut off" : known, position(*now)));
    verdict.lost.push_back(static_cast<int>(r));
  }
  return verdict;
}

Verdict loss_of(int rank, const std::string& identity) {
  return {Errc::peer_lost,
          fmt::format("rank {} ({}) was lost: its process died or its connection broke", rank, identity),
          {rank}};
}

namespace {

// Of ranks that all live: who calls something else, or has not come.
std::optional<Verdict> blame_living(const Stall& stall, const std::vector<Observation>& observations,
                                    const std::vector<std::optional<RankRecord>>& latest) {
  const auto late = [&](const std::string& who) {
    return Verdict{Errc::timeout,
                   fmt::format("{} did not complete within {:.1f} s: {}", circumstance(stall), stall.seconds, who)};
  };
  if (stall.partner == -1) {
    if (const auto verdict = blame_disagreeing(stall, latest)) return *verdict;
    if (const auto names = name_late(stall, observations); !names.empty()) return late(names);
  } else if (stall.partner == Stall::anybody) {
    if (!stall.transport.empty()) return std::nullopt;
    return late(name_possible_senders(stall, observations));
  } else if (const auto& partner = latest[static_cast<std::size_t>(stall.partner)];
             partner && !in_counterpart(stall, *partner)) {
    return late(fmt::format("{} has not called its counterpart; it {}",
                            name_rank(static_cast<std::size_t>(stall.partner), *partner), position(*partner)));
  }
  return std::nullopt;
}

}  // namespace

Verdict diagnose(const Stall& stall, const std::vector<Observation>& observations, double seconds_between) {
  std::vector<std::optional<RankRecord>> latest;
  for (const auto& observation : observations) latest.push_back(observation.now);
  if (const auto verdict = blame_leavers(stall, latest)) return *verdict;

  const auto what = circumstance(stall);
  if (auto silent = name_silent(stall, observations, seconds_between); !silent.lost.empty()) {
    silent.message += fmt::format(" ({} did not complete)", what);
    return silent;
  }
  if (const auto verdict = blame_living(stall, observations, latest)) return *verdict;
  if (!stall.transport.empty()) {
    return {Errc::connection_lost,
            fmt::format("{} failed though all ranks live: {} (as seen by rank {})", what, stall.transport, stall.rank)};
  }
  return {Errc::timeout,
          fmt::format("{} did not complete within {:.1f} s though all ranks are in it: the network between "
                      "them is slow or broken (as seen by rank {})",
                      what, stall.seconds, stall.rank)};
}

}  // namespace ddprun::comm
