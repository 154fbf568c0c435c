#include "tests/simulation/recovery_training.h"

#include <algorithm>
#include <set>
#include <variant>

namespace ddprun::testing {

void RecoveryTraining::progress(Rank& rank) {
  std::visit([&](const auto& request) { this->execute(rank, request); }, RecoveryState::Request(rank.request));
}

void RecoveryTraining::execute(Rank& rank, const RecoveryState::AwaitPlan& request) {
  if (job_.plans.back().generation <= request.newer_than) {
    report_lost(rank);
    if (job_.any_finished() && job_.unplanned.empty()) rank.request = rank.state.on_no_plan();
    return;
  }
  rank.waits = false;
  rank.exchanged = false;
  rank.operation = 0;
  rank.request = rank.state.on_plan(job_.plans.back());
  const auto& members = job_.plans.back().members;
  if (job_.options.changes > 0 && std::ranges::count(members, rank.name) == 0 &&
      std::holds_alternative<RecoveryState::GiveUp>(rank.request))
    leave(rank);  // it was not told in time: its agent stops it
}

void RecoveryTraining::execute(Rank& rank, const RecoveryState::FormGroup&) {
  if (job_.any_finished()) return fail(rank);  // that member has left
  const bool superseded = job_.plans.back().generation > rank.state.generation();
  if (superseded && job_.random() % 2 == 0) return fail(rank);
  if (!collective(rank)) return;
  job_.group_of(rank).formed.insert(rank.name);
  rank.knows_others = true;
  if (std::ranges::count(job_.plan_of(rank).members, rank.name) != 1) job_.broken("{} is not a member once", rank.name);
  rank.request = rank.state.on_formed();
}

void RecoveryTraining::execute(Rank& rank, const RecoveryState::ComparePositions& request) {
  if (!rank.waits) job_.group_of(rank).positions[{rank.name, rank.operation + 1}] = request.own;
  if (!collective(rank)) return;
  std::vector<Holdings> positions;
  for (const auto& member : job_.plan_of(rank).members)
    positions.push_back(job_.group_of(rank).positions.at({member, rank.operation}));
  rank.request = rank.state.on_positions(positions);
  if (std::holds_alternative<RecoveryState::CopyState>(rank.request)) {
    if (!job_.is_sharded() && std::get<RecoveryState::CopyState>(rank.request).receives) rank.digest.reset();
  } else if (std::holds_alternative<RecoveryState::Train>(rank.request)) {
    resume(rank);
  }
}

// In a broadcast, the source needs no other member to complete it.
void RecoveryTraining::execute(Rank& rank, const RecoveryState::CopyState& request) {
  if (job_.is_sharded()) return restore(rank, request.catchup);
  const auto& source = job_.plan_of(rank).members[static_cast<std::size_t>(request.catchup.source)];
  if (!broadcast(rank, source)) return;
  if (request.receives) {
    const auto sent = copies_.at({rank.state.generation(), source});
    rank.digest = sent.first;
    rank.step = sent.second;
    ++job_.outcome.copies;
  }
  rank.request = rank.state.on_copied(rank.step);
  resume(rank);
}

// All ranks make a new state, of which each gets its part from one that holds it, and then wait for each other.
void RecoveryTraining::restore(Rank& rank, const Catchup& catchup) {
  if (!rank.exchanged) {
    if (!rank.waits) {
      rank.digest.reset();
      job_.group_of(rank).all[{rank.name, rank.operation + 1}] = rank.kept;
    }
    const auto& members = job_.plan_of(rank).members;
    const bool from_start = catchup.from == StateSource::checkpoint;
    const auto& source =
        from_start ? rank.name : members[static_cast<std::size_t>(catchup.sources[number_in_plan(rank)])];
    if (!broadcast(rank, source)) return;
    rank.exchanged = true;
    rank.step = catchup.step;
    rank.digest = from_start ? job_.initial(rank.number) : digest_at(rank, source, catchup);
    rank.parts = job_.parts();
  }
  if (!collective(rank)) return;
  rank.exchanged = false;
  std::erase_if(rank.kept, [](const Kept& each) { return each.held.applied; });
  if (catchup.from == StateSource::checkpoint) {
    rank.kept.clear();
    rank.confirmed = -1;
  }
  count(rank, catchup);
  rank.request = rank.state.on_copied(catchup.step);
  resume(rank);
  rank.owes_effects = catchup.from == StateSource::applied && rank.step > 0;
  rank.owes_copies = true;
}

std::size_t RecoveryTraining::number_in_plan(const Rank& rank) const {
  const auto& members = job_.plan_of(rank).members;
  return static_cast<std::size_t>(std::ranges::find(members, rank.name) - members.begin());
}

std::optional<Digest> RecoveryTraining::digest_at(Rank& rank, const std::string& source, const Catchup& catchup) {
  for (const auto& [held, digest] : job_.group_of(rank).all.at({source, rank.operation}))
    if (held.step == catchup.step && held.part == job_.part_of(rank.number) &&
        held.applied == (catchup.from == StateSource::applied))
      return digest;
  job_.broken("{} does not hold what {} wants", source, rank.name);
  return std::nullopt;
}

void RecoveryTraining::count(const Rank& rank, const Catchup& catchup) {
  const bool lags = std::ranges::count(catchup.lagging, static_cast<int>(number_in_plan(rank))) > 0;
  if (catchup.from == StateSource::copies) ++job_.outcome.from_copies;
  if (catchup.from == StateSource::applied && lags) ++job_.outcome.from_replicas;
  const bool has_replicas = job_.options.ranks >= 2 * job_.options.parts;
  if (catchup.from != StateSource::applied && has_replicas && job_.deaths_since_training < 2)
    job_.broken("{} repeats steps although replicas of all parts live", rank.name);
  if (catchup.from != StateSource::checkpoint) return;
  ++job_.outcome.from_start;
  if (job_.deaths_since_copies < 2) job_.broken("{} begins again although no two ranks have died", rank.name);
}

// Sends its part to the next rank, and keeps that of the one before; once all have both, earlier ones are dropped.
void RecoveryTraining::keep_copies(Rank& rank) {
  auto& group = job_.group_of(rank);
  const auto& members = job_.plan_of(rank).members;
  const auto before = (number_in_plan(rank) + members.size() - 1) % members.size();
  if (!rank.exchanged) {
    if (!rank.waits) group.sent[{rank.name, rank.operation + 1}] = *rank.digest;
    if (!broadcast(rank, members[before])) return;
    rank.exchanged = true;
    const auto part = job_.part_of(static_cast<int>(before));
    rank.kept.insert(rank.kept.begin(), {{{rank.step, job_.part_of(rank.number), false}, *rank.digest},
                                         {{rank.step, part, false}, group.sent.at({members[before], rank.operation})}});
  }
  if (!collective(rank)) return;
  rank.exchanged = false;
  rank.owes_copies = false;
  rank.kept.resize(2);
  rank.confirmed = rank.step;
  group.have_copies.insert(rank.name);
  if (group.have_copies.size() < members.size()) return;
  job_.deaths_since_copies = job_.dead_among(members);
}

void RecoveryTraining::set_aside(Rank& rank) {
  const auto keep = [&](std::int64_t step, bool ready, Digest digest) {
    rank.kept.push_back({{.step = step, .part = job_.part_of(rank.number), .ready = ready}, digest});
  };
  if (rank.digest) keep(rank.step, false, *rank.digest);
  if (rank.ready) keep(rank.step + 1, true, after_step(*rank.digest, rank.step + 1));
  rank.ready = false;
  Holdings holdings{.parts = rank.parts, .held = {}, .reached = rank.step, .confirmed = rank.confirmed};
  for (const Kept& each : rank.kept) holdings.held.push_back(each.held);
  rank.state.set_holdings(std::move(holdings));
}

void RecoveryTraining::execute(Rank& rank, const RecoveryState::Train&) {
  if (rank.owes_effects) return have_effects(rank);
  if (job_.is_sharded() && rank.owes_copies) return keep_copies(rank);
  if (rank.step == job_.options.steps) {
    if (collective(rank)) finish(rank);  // the comparison of digests
    return;
  }
  const bool is_decided = job_.options.changes > 0 && job_.plans.back().generation > rank.state.generation();
  if (!rank.waits && job_.is_first(rank) && is_decided) job_.group_of(rank).change_requests.insert(rank.operation + 1);
  rank.ready = true;
  if (!collective(rank)) return;
  rank.ready = false;
  ++rank.step;
  rank.digest = after_step(*rank.digest, rank.step);
  if (!job_.is_sharded()) rank.state.on_applied(rank.step);
  rank.owes_effects = true;
  rank.owes_copies = rank.step % 3 == 0;
  if (!job_.group_of(rank).change_requests.contains(rank.operation)) return;
  have_effects(rank);
  rank.changes = {rank.step, job_.outcome.deaths};
  rank.request = rank.state.on_change();
}

void RecoveryTraining::execute(Rank& rank, const RecoveryState::Leave&) {
  if (rank.name == job_.additional || rank.number < job_.options.ranks)
    job_.broken("{} leaves, which nobody has asked for", rank.name);
  ++job_.outcome.left;
  leave(rank);
}

void RecoveryTraining::leave(Rank& rank) {
  rank.left = true;
  rank.alive = false;
}

void RecoveryTraining::execute(Rank& rank, const RecoveryState::GiveUp& request) {
  for (const auto& other : job_.ranks)
    if (other.alive && other.digest && !job_.any_finished() && !job_.outcome.unknown &&
        std::ranges::count(job_.plans.back().members, other.name) > 0)
      job_.broken("{} gives up although {} has the state: {}", rank.name, other.name, request.reason);
  job_.outcome.gave_up = true;
}

// The rank first withdraws its announcement.
void RecoveryTraining::finish(Rank& rank) {
  if (rank.number < job_.options.ranks) job_.able.at(static_cast<std::size_t>(rank.number)) = false;
  rank.finished = true;
}

void RecoveryTraining::resume(Rank& rank) {
  ++job_.outcome.recoveries;
  const auto& train = std::get<RecoveryState::Train>(rank.request);
  if (!rank.digest || rank.step != train.step)
    job_.broken("{} is to train after step {}, and stands at {}", rank.name, train.step, rank.step);
  rank.owes_effects = rank.step > 0;
  auto& resumed = job_.group_of(rank).resumed;
  resumed.insert(rank.name);
  const auto& members = job_.plan_of(rank).members;
  if (resumed.size() == members.size()) job_.deaths_since_training = job_.dead_among(members);
  const auto changed = std::exchange(rank.changes, std::nullopt);
  if (!changed) return;
  ++job_.outcome.changes;
  const auto [step, deaths] = *changed;
  if (rank.step != step && deaths == job_.outcome.deaths)
    job_.broken("{} changes groups after step {}, and goes on after {}", rank.name, step, train.step);
}

// Records of the step and later ones are replaced, as a file is cut when it is opened at a step.
void RecoveryTraining::have_effects(Rank& rank) {
  rank.owes_effects = false;
  if (!job_.is_first(rank)) return;
  while (!records_.empty() && records_.back() >= rank.step) records_.pop_back();
  records_.push_back(rank.step);
}

// Contributes once, then returns whether the operation has completed here. Where a member is dead it may fail
// instead, and does if a contribution is missing.
bool RecoveryTraining::collective(Rank& rank) {
  contribute(rank);
  const auto& members = job_.plan_of(rank).members;
  bool complete = true, dead = !job_.group_of(rank).lost.empty();
  for (const auto& member : members) {
    complete &= job_.group_of(rank).contributed[member] >= rank.operation;
    dead |= job_.living(member) == nullptr;
  }
  return settle(rank, complete, dead);
}

bool RecoveryTraining::broadcast(Rank& rank, const std::string& source) {
  if (!rank.waits && rank.name == source) copies_[{rank.state.generation(), source}] = {*rank.digest, rank.step};
  contribute(rank);
  const bool complete = job_.group_of(rank).contributed[source] >= rank.operation;
  const bool dead =
      !job_.group_of(rank).lost.empty() ||
      std::ranges::any_of(job_.plan_of(rank).members, [&](const auto& each) { return !job_.living(each); });
  return settle(rank, complete, dead);
}

void RecoveryTraining::contribute(Rank& rank) {
  if (rank.waits) return;
  job_.group_of(rank).contributed[rank.name] = ++rank.operation;
  rank.waits = true;
}

// A newer plan ends what members wait for in the group of an older one.
bool RecoveryTraining::others_have_left(const Rank& rank) {
  return std::ranges::any_of(job_.plan_of(rank).members, [&](const auto& member) {
    const Rank* const other = job_.living(member);
    return other && other->state.generation() > rank.state.generation();
  });
}

bool RecoveryTraining::settle(Rank& rank, bool complete, bool dead) {
  if ((dead && job_.random() % 2 == 0) || (!complete && (dead || others_have_left(rank)))) {
    fail(rank);
    return false;
  }
  if (complete) rank.waits = false;
  return complete;
}

void RecoveryTraining::fail(Rank& rank) {
  if (job_.is_sharded() && std::holds_alternative<RecoveryState::Train>(rank.request)) set_aside(rank);
  rank.request = rank.state.on_failure("a peer was lost");
}

// A rank that waits for a plan reports whom its group has lost. One that has been in no group knows nobody.
void RecoveryTraining::report_lost(Rank& rank) {
  const auto& lost = job_.group_of(rank).lost;
  if (lost.empty()) return;
  const bool somebody_knows = std::ranges::any_of(job_.ranks, [&](const Rank& other) {
    return other.alive && !other.frozen && other.knows_others && job_.group_of(other).lost == lost;
  });
  if (!somebody_knows) return nobody_reports(rank);
  if (!rank.knows_others) return;
  for (const auto& name : lost)
    if (job_.living(name)) job_.reported.insert(name);
}

void RecoveryTraining::nobody_reports(Rank& rank) {
  if (!job_.unplanned.empty() || !job_.reported.empty()) return;
  job_.outcome.unknown = true;
  rank.request = rank.state.on_no_plan();
}

}  // namespace ddprun::testing
