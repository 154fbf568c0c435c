#include "worker/comm/health/diagnosis.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// Grace for messages of a peer that left, where the transport does not state its own.
constexpr milliseconds default_linger{2000};

std::string name_rank(int rank, const RankRecord& record) {
  return fmt::format("rank {} ({})", rank, record.identity());
}

void append(std::string& list, const std::string& item, const char* separator = "; ") {
  if (!list.empty()) list += separator;
  list += item;
}

// Returns what a rank called under the number of a collective, if its record says so.
std::optional<OperationDescription> call_under(std::uint64_t sequence, const RankRecord& record) {
  if (record.newest() == sequence) return record.operation;
  for (const auto& each : record.operations)
    if (!each.transfer() && each.sequence == sequence) return each.description;
  return std::nullopt;
}

// Returns what a rank is doing, as a clause that follows "it".
std::string activity(const RankRecord& record) {
  if (record.left) return "has left the group";
  if (record.inside && record.operation)
    return fmt::format("is still in {} #{}", describe(*record.operation), record.sequence);
  std::string messages;
  for (const auto& each : record.operations)
    if (each.transfer()) append(messages, describe(each.description), ", ");
  const auto last = record.operation ? fmt::format("{} #{}", describe(*record.operation), *record.newest()) : "";
  if (messages.empty())
    return last.empty() ? "has not called anything yet" : "is between operations; its last was " + last;
  return last.empty() ? "is in " + messages : fmt::format("is in {}, after {}", messages, last);
}

// Returns whether two sends, or two receives, have the same peer and tag.
bool same_channel(const OperationDescription& one, const OperationDescription& other) {
  return one.kind == other.kind && one.peer == other.peer && one.tag == other.tag;
}

// Returns whether a rank's record shows the counterpart of a send or receive. A receive from any source counts.
bool in_counterpart(const Stall& stall, const RankRecord& partner) {
  const auto expected = stall.counterpart();
  auto from_any = expected;
  if (expected.is_recv()) from_any.peer = -1;
  return std::any_of(partner.operations.begin(), partner.operations.end(), [&](const RankOperation& each) {
    return each.transfer() && (agree(each.description, expected) || agree(each.description, from_any));
  });
}

// Returns the sends to that rank that a record shows.
std::string sends_to(int rank, const RankRecord& record) {
  std::string sends;
  for (const auto& each : record.operations)
    if (each.description.is_send() && each.description.peer == rank) append(sends, describe(each.description), ", ");
  return sends;
}

// For a receive from any rank: names the ranks that send to its rank, or else what the first few others do.
std::string name_possible_senders(const Stall& stall, const std::vector<Observation>& observations) {
  constexpr std::size_t most = 4;
  std::string senders, others;
  std::size_t other_count = 0;
  for (int r = 0; r < static_cast<int>(observations.size()); ++r) {
    const auto& now = observations[static_cast<std::size_t>(r)].now;
    if (!stall.concerns(r) || !now) continue;
    if (in_counterpart(stall, *now))
      return fmt::format("{} is in {}: the network between them is slow or broken", name_rank(r, *now),
                         describe(stall.counterpart()));
    if (const auto sends = sends_to(stall.rank, *now); !sends.empty())
      append(senders, fmt::format("{} is in {}", name_rank(r, *now), sends));
    else if (other_count++ < most)
      append(others, fmt::format("{} {}", name_rank(r, *now), activity(*now)));
  }
  if (!senders.empty()) return fmt::format("no rank is in {}: {}", describe(stall.counterpart()), senders);
  if (other_count > most) append(others, fmt::format("and {} more", other_count - most));
  return fmt::format("no rank is in a send to rank {}: {}", stall.rank, others);
}

// Names the ranks furthest behind, and none that wait for those.
std::string name_late(const Stall& stall, const std::vector<Observation>& observations) {
  const auto progress = [](const RankRecord& record) { return 2 * record.sequence + (record.inside ? 1 : 0); };
  const auto entered = 2 * stall.sequence + 1;
  auto least = entered;
  for (const auto& [before, now] : observations) {
    if (now) least = std::min(least, progress(*now));
  }
  std::string names;
  for (int r = 0; r < static_cast<int>(observations.size()); ++r) {
    const auto& now = observations[static_cast<std::size_t>(r)].now;
    if (!stall.concerns(r) || !now || progress(*now) != least || least >= entered) continue;
    append(names, fmt::format("{} has not entered it: it {}", name_rank(r, *now), activity(*now)));
  }
  return names;
}

std::optional<GroupFailure> diagnose_disagreement(const CollectiveCalls& collective, int size) {
  std::vector<RankCall> calls;
  for (const auto& [rank, call] : collective.calls) calls.push_back(call);
  if (collective.more_may_follow && !odd_ranks_are_known(calls, static_cast<std::size_t>(size))) return std::nullopt;
  auto text = disagreement_text(collective.sequence, calls);
  if (text.empty()) return std::nullopt;
  return GroupFailure{Errc::mismatch, std::move(text)};
}

// Returns the calls under the number of the overdue operation, as the ranks' latest records have them.
CollectiveCalls latest_calls(const OverdueOperation& overdue, const std::string& identity, const PeerRecords& latest) {
  auto collective = own_call(overdue.own, identity);
  for (const auto& [rank, record] : latest) collective.add(rank, record);
  collective.more_may_follow = overdue.calls_may_follow;
  return collective;
}

// Finds that the partner is in a send or receive of the same number, ranks and tag, but of other elements.
std::optional<GroupFailure> diagnose_message_mismatch(const Stall& stall, const std::string& identity, int peer,
                                                      const RankRecord& record) {
  if (stall.partner() != peer || stall.sequence == 0) return std::nullopt;
  const auto expected = stall.counterpart();
  for (const auto& each : record.operations) {
    if (!each.transfer() || each.sequence != stall.sequence || !same_channel(each.description, expected)) continue;
    if (agree(each.description, expected)) continue;
    return GroupFailure{Errc::mismatch,
                        fmt::format("rank {} ({}) calls {}, {} calls {}", stall.rank, identity,
                                    describe(stall.operation), name_rank(peer, record), describe(each.description))};
  }
  return std::nullopt;
}

// Returns the ranks that left without taking part in the operation. One whose next collective is a later one took part.
std::vector<int> leavers(const Stall& stall, const PeerRecords& records) {
  std::vector<int> ranks;
  for (const auto& [rank, record] : records) {
    const bool took_part = stall.partner() == Stall::all_ranks && record.sequence > stall.sequence;
    if (record.left && stall.concerns(rank) && !took_part) ranks.push_back(rank);
  }
  return ranks;
}

// A receive from any rank is satisfied by any other rank that is still here.
std::optional<GroupFailure> diagnose_leavers(const Stall& stall, const PeerRecords& records, int size) {
  const auto ranks = leavers(stall, records);
  const bool others_remain = static_cast<int>(ranks.size()) < size - 1;
  if (ranks.empty() || (stall.partner() == Stall::any_rank && others_remain)) return std::nullopt;
  std::string names;
  for (const int rank : ranks) append(names, name_rank(rank, records.at(rank)));
  return GroupFailure{Errc::peer_lost,
                      fmt::format("{} left the group while {} was in progress", names, name_operation(stall))};
}

// A send or receive fails only once no message of the peers that left can still arrive.
std::optional<GroupFailure> diagnose_departure(const Facts& facts, const Departure& departure) {
  const int partner = departure.own.partner();
  if (partner != Stall::all_ranks) {
    if (!facts.linger_timeout && partner != Stall::any_rank) return std::nullopt;
    if (departure.known_for < facts.linger_timeout.value_or(default_linger)) return std::nullopt;
  }
  return diagnose_leavers(departure.own, departure.left, facts.size);
}

// Returns this rank's host if all ranks of several other hosts are silent, and none of its own: rather than they, it
// has lost its link. Otherwise returns an empty string.
std::string cut_off_host(int own_rank, const std::vector<Observation>& observations, const std::vector<int>& silent) {
  const auto& own = observations[static_cast<std::size_t>(own_rank)].now;
  if (!own) return {};
  std::set<std::string> other_hosts;
  for (int r = 0; r < static_cast<int>(observations.size()); ++r) {
    const auto& now = observations[static_cast<std::size_t>(r)].now;
    if (r == own_rank || (now && now->left)) continue;
    const bool is_silent = std::ranges::count(silent, r) > 0;
    if (!now || is_silent == (now->host == own->host)) return {};
    if (is_silent) other_hosts.insert(now->host);
  }
  return other_hosts.size() > 1 ? own->host : std::string();
}

// Returns the host whose ranks are all silent, if it has several, and no rank elsewhere is: rather than all of them, it
// has failed or lost its link. Otherwise returns an empty string.
std::string silent_host(int own_rank, const std::vector<Observation>& observations, const std::vector<int>& silent) {
  const auto host = observations[static_cast<std::size_t>(silent.front())].now->host;
  const auto& own = observations[static_cast<std::size_t>(own_rank)].now;
  if (silent.size() < 2 || !own || own->host == host) return {};
  for (int r = 0; r < static_cast<int>(observations.size()); ++r) {
    const auto& now = observations[static_cast<std::size_t>(r)].now;
    if (now && now->left) continue;
    const bool is_silent = std::ranges::count(silent, r) > 0;
    if (!now || is_silent != (now->host == host)) return {};
  }
  return host;
}

std::optional<GroupFailure> diagnose_silence(int own_rank, const Silence& silence) {
  GroupFailure failure{Errc::peer_lost, ""};
  for (int r = 0; r < static_cast<int>(silence.observations.size()); ++r) {
    const auto& [before, now] = silence.observations[static_cast<std::size_t>(r)];
    if (r == own_rank || !before || !now || now->left || before->beat != now->beat) continue;
    const auto state = silence.process_states.find(r);
    append(failure.message,
           fmt::format("{} sent no heartbeat for {:.1f} s: {}; it {}", name_rank(r, *now), silence.seconds,
                       state == silence.process_states.end() ? "it is frozen or cut off" : state->second.c_str(),
                       activity(*now)));
    failure.lost.push_back(r);
  }
  if (failure.lost.empty()) return std::nullopt;
  if (const auto host = cut_off_host(own_rank, silence.observations, failure.lost); !host.empty())
    failure.message = fmt::format("host {} is cut off from all others: {}", host, failure.message);
  else if (const auto other = silent_host(own_rank, silence.observations, failure.lost); !other.empty())
    failure.message = fmt::format("host {} is cut off from this one, or down: {}", other, failure.message);
  return failure;
}

// A rank that published nothing at all is silent, too: the group has formed.
std::optional<GroupFailure> diagnose_silent_partners(const OverdueOperation& overdue) {
  GroupFailure failure{Errc::peer_lost, ""};
  for (int r = 0; r < static_cast<int>(overdue.observations.size()); ++r) {
    const auto& [before, now] = overdue.observations[static_cast<std::size_t>(r)];
    if (!overdue.own.concerns(r) || (now && (now->left || !before || before->beat != now->beat))) continue;
    failure.lost.push_back(r);
    append(failure.message, now ? fmt::format("{} sent no heartbeat for {:.1f} s: it is frozen or cut off",
                                              name_rank(r, *now), overdue.seconds_between)
                                : fmt::format("rank {} never sent a heartbeat", r));
  }
  if (failure.lost.empty()) return std::nullopt;
  failure.message += fmt::format(" ({} did not complete)", name_operation(overdue.own));
  return failure;
}

// Applies when all ranks live: one of them has not entered the operation.
std::optional<GroupFailure> diagnose_lateness(const OverdueOperation& overdue) {
  const auto& own = overdue.own;
  std::string late;
  if (own.partner() == Stall::all_ranks) {
    late = name_late(own, overdue.observations);
  } else if (own.partner() == Stall::any_rank) {
    if (own.transport_error.empty()) late = name_possible_senders(own, overdue.observations);
  } else if (const auto& partner = overdue.observations[static_cast<std::size_t>(own.partner())].now;
             partner && !in_counterpart(own, *partner)) {
    late =
        fmt::format("{} has not called its counterpart; it {}", name_rank(own.partner(), *partner), activity(*partner));
  }
  if (late.empty()) return std::nullopt;
  return GroupFailure{Errc::timeout,
                      fmt::format("{} did not complete within {:.1f} s: {}", name_operation(own), own.seconds, late)};
}

GroupFailure diagnose_network(const Stall& own) {
  const auto what = name_operation(own);
  if (!own.transport_error.empty()) {
    return {Errc::connection_lost, fmt::format("{} failed though all ranks live: {} (as seen by rank {})", what,
                                               own.transport_error, own.rank)};
  }
  return {Errc::timeout,
          fmt::format("{} did not complete within {:.1f} s though all ranks are in it: the network between "
                      "them is slow or broken (as seen by rank {})",
                      what, own.seconds, own.rank)};
}

GroupFailure diagnose_silent_store(const Facts& facts, const OverdueOperation& overdue) {
  return {Errc::connection_lost,
          fmt::format("{} did not complete within {:.1f} s, and the store does not answer: rank {} ({}) may be cut "
                      "off ({})",
                      describe(overdue.own.operation), overdue.own.seconds, facts.rank, facts.identity,
                      *overdue.store_error)};
}

std::optional<GroupFailure> diagnose_overdue(const Facts& facts, const OverdueOperation& overdue) {
  if (overdue.store_error) return diagnose_silent_store(facts, overdue);
  PeerRecords latest;
  for (int r = 0; r < static_cast<int>(overdue.observations.size()); ++r)
    if (const auto& now = overdue.observations[static_cast<std::size_t>(r)].now) latest.emplace(r, *now);
  if (auto failure = diagnose_leavers(overdue.own, latest, facts.size)) return failure;
  if (overdue.own.partner() == Stall::all_ranks)
    if (auto failure = diagnose_disagreement(latest_calls(overdue, facts.identity, latest), facts.size)) return failure;
  if (overdue.cause_may_follow || !overdue.observed_long_enough) return std::nullopt;
  if (auto failure = diagnose_silent_partners(overdue)) return failure;
  if (auto failure = diagnose_lateness(overdue)) return failure;
  return diagnose_network(overdue.own);
}

}  // namespace

int Stall::partner() const {
  if (!operation.point_to_point()) return all_ranks;
  return operation.from_any_source() ? any_rank : operation.peer;
}

bool Stall::concerns(int other) const {
  return other != rank && (partner() < 0 || other == partner());
}

OperationDescription Stall::counterpart() const {
  auto other = operation;
  other.kind = operation.is_send() ? "recv" : "send";
  other.peer = rank;
  return other;
}

std::string name_operation(const Stall& stall) {
  if (stall.partner() != Stall::all_ranks) return fmt::format("{} of rank {}", describe(stall.operation), stall.rank);
  return fmt::format("{} #{}", describe(stall.operation), stall.sequence);
}

void CollectiveCalls::add(int rank, const RankRecord& record) {
  if (auto call = call_under(sequence, record)) calls.try_emplace(rank, RankCall{name_rank(rank, record), *call});
}

CollectiveCalls own_call(const Stall& own, const std::string& identity) {
  return {.sequence = own.sequence,
          .calls = {{own.rank, {fmt::format("rank {} ({})", own.rank, identity), own.operation}}}};
}

// A rank that left before its process ended is no loss.
std::optional<GroupFailure> diagnose(const Facts& facts) {
  for (const auto& [rank, record] : facts.ended)
    if (!record.left) return failure_by_loss(rank, record.identity());
  if (facts.duplicate) {
    return GroupFailure{Errc::mismatch, fmt::format("two processes are rank {}: {} and {}", facts.rank, facts.identity,
                                                    facts.duplicate->identity())};
  }
  if (facts.silence)
    if (auto failure = diagnose_silence(facts.rank, *facts.silence)) return failure;
  if (facts.collective)
    if (auto failure = diagnose_disagreement(*facts.collective, facts.size)) return failure;
  for (const auto& [own, peer, record] : facts.comparisons)
    if (auto failure = diagnose_message_mismatch(own, facts.identity, peer, record)) return failure;
  for (const auto& each : facts.departures)
    if (auto failure = diagnose_departure(facts, each)) return failure;
  if (facts.overdue) return diagnose_overdue(facts, *facts.overdue);
  return std::nullopt;
}

bool all_partners_left(const Stall& stall, const PeerRecords& records, int size) {
  return diagnose_leavers(stall, records, size).has_value();
}

GroupFailure diagnose_lost_store(const StoreHost& host, int rank, const std::string& identity,
                                 const std::string& cause) {
  if (host.rank && *host.rank != rank) {
    const auto name = host.identity.empty() ? fmt::format("rank {}", *host.rank) : host.identity;
    return {Errc::peer_lost, fmt::format("{}, whose process serves the store, was lost: {}", name, cause)};
  }
  if (!host.neighbour.empty()) {
    return {Errc::peer_lost,
            fmt::format("{}, on whose host the store is, was lost, or rank {} ({}) is cut off from there: {}",
                        host.neighbour, rank, identity, cause)};
  }
  return {Errc::connection_lost, fmt::format("rank {} ({}) lost the group's store: {}", rank, identity, cause)};
}

}  // namespace ddprun::comm
