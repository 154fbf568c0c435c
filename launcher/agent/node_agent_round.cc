// The round of a node, its workers and their store.
#include <algorithm>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "launcher/agent/descriptor_limit.h"
#include "launcher/agent/node_agent.h"
#include "rendezvous/backend.h"

namespace ddprun {
namespace {

// Returns whether nodes of the round are gone, or have come back with new workers.
bool has_lost_members(const Round& round, const RoundChanged& change) {
  return std::ranges::any_of(round.members, [&](const RoundMember& former) {
    const auto now = std::ranges::find(change.round.members, former.node_id, &RoundMember::node_id);
    return now == change.round.members.end() || change.joins(now->group_rank);
  });
}

// A store or rendezvous server that has accepted no client for this long, or for the join timeout, ends the job.
constexpr std::chrono::milliseconds accept_timeout{30'000};

}  // namespace

std::map<int, pid_t> NodeAgent::running_ranks() const {
  std::map<int, pid_t> ranks;
  for (const auto& worker : group_.workers())
    if (!worker.exit) ranks[self().first_rank + worker.local_rank] = worker.pid;
  return ranks;
}

void NodeAgent::execute(const PrepareRound& action) {
  const bool serves_workers =
      spec_.policy.agent_store && (backend_->serves_workers() ? backend_->is_host() : action.serves_store);
  check_descriptor_limit(action, serves_workers ? action.world_size : 0);
  backend_->rendezvous().ready(action.generation, provide_store(action));
}

void NodeAgent::check_descriptor_limit(const PrepareRound& action, int connections_of_workers) const {
  ddprun::check_descriptor_limit(spec_, {.connections_of_workers = connections_of_workers,
                                         .sessions = backend_->is_host() ? action.nodes - 1 : 0});
}

// Returns what Rendezvous::ready() takes. A store that stands by for another node's ends nothing if it fails.
std::uint16_t NodeAgent::provide_store(const PrepareRound& action) try {
  if (!action.serves_store && !(store_notice_ && spec_.policy.agent_store)) return 0;
  if (!action.serves_store) check_descriptor_limit(action, action.world_size);
  return store_.provide(action.address, backend_->serves_workers(), accept_bound(), [this](const Error& e) {
    if (round_ && store_.serves(*round_)) act(state_.on_fault(e));
  });
} catch (const Error& error) {
  if (action.serves_store) throw;
  log::warn("this node does not serve the workers' store if the node that does is lost: {}", error.what());
  return 0;
}

// Workers of the job may be replaced, and its nodes change, while the others run, by the rendezvous server's
// decision.
bool NodeAgent::decides_with_server(const AgentSpec& spec) {
  return spec.restarts.single_workers && spec.restarts.asks_server;
}

void NodeAgent::execute(const StartWorkers& action) {
  try {
    round_ = action.round;
    spare_.hand_over();
    training_.clear();
    remove_token_file();
    store_.answer_for(*round_, backend_->serves_workers());
    if (store_notice_) store_notice_->set_place("", 0, 0);
    group_.start(action.round, store_socket());
    attached_.round_started();
    if (spec_.policy.agent_store) hint_.start();
    store_.probe(*round_, backend_->serves_workers());
    if (events_) events_->workers_started(group_.workers());
    recoverable_reports_.report();
    report_first_step();
    inject_faults();
  } catch (const Error& e) {
    act(state_.on_workers_failed({not_started(0, e)}));
  }
}

// All nodes have read the file. A later job of the same Slurm step must not find it.
void NodeAgent::remove_token_file() {
  if (spec_.trust.file && static_cast<int>(round_->members.size()) == spec_.policy.max_nodes)
    spec_.trust.file->remove();
}

// The failure of a worker for which there is no process.
WorkerFailure NodeAgent::not_started(int local_rank, const Error& error) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.rank = self().first_rank + local_rank,
          .local_rank = local_rank,
          .group_rank = self().group_rank,
          .host = spec_.group.host,
          .exit_code = exit_fault,
          .time_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
          .message = error.what(),
          .cause = error.what()};
}

// The conditions of this node's workers, where single workers can be replaced; otherwise none.
std::vector<WorkerCondition> NodeAgent::conditions() const {
  std::vector<WorkerCondition> conditions;
  if (!round_ || !spec_.restarts.single_workers) return conditions;
  const auto able = store_.able(*round_, state_.members());
  for (const auto& worker : group_.workers())
    conditions.push_back(
        {.able = !able.empty() && able.at(static_cast<std::size_t>(self().first_rank + worker.local_rank)),
         .running = !worker.exit,
         .started = worker.started});
  return conditions;
}

void NodeAgent::execute(const AnswerRecovery& action) {
  auto refusal = action.refusal;
  if (refusal.empty()) {
    const auto able = store_.able(*round_, state_.members());
    const auto unable = std::find(able.begin(), able.end(), false);
    if (able.empty()) refusal = "no rank has announced that it can recover";
    if (unable != able.end())
      refusal = fmt::format("rank {} has not announced that it can recover", unable - able.begin());
  }
  backend_->rendezvous().answer_recovery(action.generation, refusal);
}

// Returns whether the workers of the round can recover; none if this agent does not report it.
std::optional<Recoverable> NodeAgent::recoverable() const {
  if (!decides_with_server(spec_) || !round_ || !store_.serves(*round_)) return std::nullopt;
  const auto able = store_.able(*round_, state_.members());
  return Recoverable{round_->generation, std::ranges::find(able, false) == able.end()};
}

void NodeAgent::execute(const KeepRound& action) {
  backend_->rendezvous().keep_round(action.done);
}

void NodeAgent::execute(const GiveUpRound&) {
  backend_->rendezvous().give_up_round();
}

// The workers of a node that has come join after the start of their process, those of a node that has gone leave
// after a step, or have ended.
void NodeAgent::execute(const ChangeRound& action) {
  const int former_rank = self().first_rank;
  const bool has_lost = has_lost_members(*round_, action.change);
  const bool store_moves = round_->store() != action.change.round.store();
  round_ = action.change.round;
  group_.change_round(*round_, store_socket());
  if (store_moves) follow_store(action.change.in_order);
  attached_.round_changed(self().first_rank - former_rank);
  if (!store_.serves(*round_)) return;
  if (store_.is_over(*round_)) {
    // The others of a lost rank wait for it at the end of the run.
    if (has_lost) backend_->rendezvous().answer_recovery(round_->generation, "the run is over at some ranks");
    return;
  }
  const auto able = store_.able(*round_, action.members);
  if (const auto unable = std::find(able.begin(), able.end(), false); unable != able.end())
    return backend_->rendezvous().answer_recovery(round_->generation,
                                                  fmt::format("rank {} cannot recover", unable - able.begin()));
  store_.announce(action.change, action.members, has_lost);
}

// The node of the workers' store has gone, and group rank 0 of the round serves another one. in_order: the workers
// leave their group by themselves; otherwise they learn of the loss here.
void NodeAgent::follow_store(bool in_order) {
  if (store_.serves(*round_)) store_.take_over();
  store_.answer_for(*round_, backend_->serves_workers());
  store_.probe(*round_, backend_->serves_workers());
  if (store_notice_)
    store_notice_->set_place(round_->master_addr, round_->master_port, in_order ? 0 : round_->group_generation);
  recoverable_reports_.report();
}

// The living workers wait for the members of the next generation, in which the replacements join.
void NodeAgent::execute(const ReplaceWorkers& action) {
  round_->restarts_used = action.restarts_used;
  watch_.workers_replaced(action.local_ranks, action.restarts_used);
  if (events_) events_->workers_replaced(some_workers(action.local_ranks), action.restarts_used);
  for (const int local_rank : action.local_ranks) {
    try {
      group_.replace(local_rank, action.generation);
    } catch (const Error& e) {
      auto workers = conditions();
      workers.at(static_cast<std::size_t>(local_rank)).started = false;
      return act(state_.on_workers_failed({not_started(local_rank, e)}, workers));
    }
  }
  if (!spec_.restarts.asks_server) replaced_ += static_cast<int>(action.local_ranks.size());
  if (!action.local_ranks.empty()) {
    attached_.worker_replaced();
    report_first_step();
  }
  store_.announce(*round_, action);
  if (events_) events_->workers_started(some_workers(action.local_ranks));
}

std::vector<std::string> NodeAgent::own_members() const {
  const auto first = state_.members().begin() + self().first_rank;
  return {first, first + self().nproc};
}

std::vector<WorkerStatus> NodeAgent::some_workers(const std::vector<int>& local_ranks) const {
  auto workers = group_.workers();
  std::erase_if(workers, [&](const WorkerStatus& worker) {
    return std::find(local_ranks.begin(), local_ranks.end(), worker.local_rank) == local_ranks.end();
  });
  return workers;
}

std::chrono::milliseconds NodeAgent::accept_bound() const {
  return std::min(spec_.policy.join_timeout, accept_timeout);
}

}  // namespace ddprun
