#include "tests/simulation/node.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/workers/worker_environment.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr Duration drain_timeout = 10s;
// An agent has few ports per run, so that a round's store often reuses the port of the previous one.
constexpr std::uint16_t first_store_port = 4000;
constexpr int store_ports = 2;

}  // namespace

Node::Node(Simulation& simulation, NodeSpec spec, Host& host, Host& endpoint, FindHost find_host)
    : simulation_(simulation),
      spec_(std::move(spec)),
      host_(host),
      endpoint_(endpoint),
      find_host_(std::move(find_host)) {}

// ---- faults

void Node::start() {
  if (up()) return;
  agent_ = std::make_shared<Agent>(spec_.rules);
  Agent& agent = *agent_;
  agent.process = std::make_shared<Process>(simulation_.time);
  agent.facts = std::make_shared<AgentFacts>();
  agent.facts->id = fmt::format("{}-{}", spec_.name, ++lives_);  // a restarted agent has a new id
  agent.facts->disturbed_until = disturbed_until_;
  simulation_.checker.agent_started(agent.facts);
  simulation_.note(spec_.name, "starts");
  serve_endpoint(agent);
  const NodeInfo info{.id = agent.facts->id, .host = spec_.name, .nproc = spec_.nproc, .node_rank = spec_.node_rank};
  const std::weak_ptr<Agent> weak = agent_;
  agent.session =
      std::make_shared<AgentSession>(simulation_, agent.process, host_, endpoint_, info, spec_.policy,
                                     spec_.store_timeout, [this, weak](int job, const RendezvousEvent& event) {
                                       if (const auto life = weak.lock()) handle_event(*life, job, event);
                                     });
  agent.session->start();
}

void Node::serve_endpoint(Agent& agent) {
  if (!spec_.serves_endpoint) return;
  agent.server = std::make_shared<Server>(simulation_, agent.process);
  host_.listeners[rendezvous_port] = agent.server;
  ++simulation_.checker.counts().servers;
}

void Node::kill() {
  if (!up()) return;
  simulation_.note(spec_.name, "is killed");
  end_life(false);
}

void Node::lose_power() {
  if (!up()) return;
  simulation_.note(spec_.name, "loses power");
  end_life(true);
}

void Node::end_life(bool with_machine) {
  Agent& agent = *agent_;
  agent.facts->alive = false;
  for (const auto& worker : agent.workers) with_machine ? worker->lose_power() : worker->kill();
  if (agent.running > 0) simulation_.checker.workers_ended(*agent.facts);
  agent.workers.clear();
  if (spec_.serves_endpoint) simulation_.checker.rendezvous_disturbed(simulation_.time.now());
  with_machine ? agent.process->lose_power() : agent.process->kill();
}

void Node::signal(int number) {
  if (!up()) return;
  simulation_.note(spec_.name, "gets signal {}", number);
  agent_->facts->exiting = true;
  agent_->process->after(0s, [this, agent = agent_, number] { act(*agent, agent->state.on_signal(number)); });
}

void Node::freeze(Duration duration) {
  if (!up()) return;
  simulation_.note(spec_.name, "is stopped for {} ms", duration / 1ms);
  agent_->process->freeze(duration);
  agent_->facts->disturbed_until = std::max(agent_->facts->disturbed_until, simulation_.time.now() + duration);
  if (spec_.serves_endpoint) simulation_.checker.rendezvous_disturbed(simulation_.time.now() + duration);
}

void Node::cut_off(Duration duration) {
  simulation_.note(spec_.name, "is cut off for {} ms", duration / 1ms);
  host_.cut_until = std::max(host_.cut_until, simulation_.time.now() + duration);
  disturbed_until_ = host_.cut_until;
  if (agent_) agent_->facts->disturbed_until = std::max(agent_->facts->disturbed_until, host_.cut_until);
  if (spec_.serves_endpoint) simulation_.checker.rendezvous_disturbed(host_.cut_until);
}

// ---- the agent

void Node::handle_event(Agent& agent, int job, const RendezvousEvent& event) {
  if (const auto* proposed = std::get_if<RoundProposed>(&event)) {
    agent.job = job;
    agent.facts->proposed_round = {job, proposed->round.generation};
  }
  if (const auto* changed = std::get_if<RoundChanged>(&event)) {
    agent.job = job;
    agent.facts->proposed_round = {job, changed->round.generation};
    agent.facts->changed = {job, changed->round.generation, changed->round.group_generation};
  }
  if (const auto* resumed = std::get_if<RoundResumed>(&event)) {
    simulation_.note(spec_.name, "goes on in generation {}", resumed->generation);
    agent.job = job;
    agent.facts->kept_until.reset();
    agent.facts->proposed_round = agent.facts->started = {job, resumed->generation};
  }
  if (std::holds_alternative<JobEnded>(event)) {
    agent.job = job;
    agent.result = !agent.facts->exiting;
    agent.facts->exiting = true;
  }
  if (const auto* lost = std::get_if<ContactLost>(&event)) {
    simulation_.note(spec_.name, "loses contact: {}", lost->error.what());
    agent.facts->exiting = true;
  }
  act(agent, agent.state.on(event));
  // One that joins starts no replacements before it has started its workers.
  if (const auto* replaced = std::get_if<WorkersReplaced>(&event))
    agent.facts->replacements = std::max(agent.facts->replacements, replaced->group_generation);
}

// Actions may cause further events at once; their actions are queued.
void Node::act(Agent& agent, AgentActions actions) {
  for (auto& action : actions) agent.queue.push_back(std::move(action));
  if (std::exchange(agent.acting, true)) return;
  while (!agent.queue.empty()) {
    const AgentAction action = std::move(agent.queue.front());
    agent.queue.pop_front();
    std::visit([&](const auto& one) { execute(agent, one); }, action);
  }
  agent.acting = false;
}

void Node::stop_store(Agent& agent) {
  if (const auto store = std::exchange(agent.store, nullptr)) store->stop();
}

void Node::execute(Agent& agent, const PrepareRound& action) {
  const bool provides = action.serves_store || spec_.rules.single_workers;
  if (!provides || !spec_.lasting_store) stop_store(agent);
  if (!agent.store) agent.store_port = 0;
  if (provides && !agent.store) {
    agent.store = std::make_shared<WorkerStore>(agent.process);
    agent.store_port = static_cast<std::uint16_t>(first_store_port + lives_ * store_ports +
                                                  simulation_.random.between(0, store_ports - 1));
    host_.listeners[agent.store_port] = agent.store;
  }
  agent.session->send(SessionReady{action.generation, agent.store_port});
}

void Node::execute(Agent& agent, const StartWorkers& action) {
  simulation_.note(spec_.name, "starts the workers of generation {}", action.round.generation);
  simulation_.checker.workers_started(*agent.facts, agent.job, action.round);
  agent.facts->started = {agent.job, action.round.generation};
  agent.facts->replacements = action.round.group_generation;
  agent.workers_job = agent.job;
  agent.generation = action.round.generation;
  agent.round = action.round;
  agent.self = action.round.members.at(static_cast<std::size_t>(action.round.self));
  agent.stopping = false;
  agent.workers.clear();
  agent.failed.clear();
  agent.running = spec_.nproc;
  for (int local_rank = 0; local_rank < spec_.nproc; ++local_rank) {
    auto plan = draw_plan();
    plan.replacement = action.round.group_generation > 0;
    agent.workers.push_back(make_worker(agent, local_rank, plan));
    if (plan.replacement) agent.workers.back()->expect_newcomers();
  }
  for (const auto& worker : agent.workers) worker->start();
  announce_recoverable(agent);
  want_standby(agent_);
}

// In some rounds workers cannot recover.
void Node::announce_recoverable(Agent& agent) {
  const bool asked = spec_.rules.single_workers && agent.self.group_rank == 0;
  if (asked && !simulation_.random.one_in(8)) announce_once_they_work(agent_, agent.generation);
}

// They can once all have exchanged keys: the barrier at its end has all workers of the round.
void Node::announce_once_they_work(const AgentPtr& agent, std::int64_t generation) {
  agent->process->after(simulation_.random.duration(0us, 2s), [this, agent, generation] {
    if (agent->generation != generation || agent->stopping) return;
    const bool all_work = std::ranges::all_of(agent->workers, [](const auto& worker) { return worker->works(); });
    if (!all_work) return announce_once_they_work(agent, generation);
    agent->session->send(WorkersRecoverable{generation, true});
  });
}

// Once their first step is done.
void Node::want_standby(const AgentPtr& agent) {
  if (spec_.policy.spares == 0 || !spec_.rules.single_workers) return;
  agent->process->after(simulation_.random.duration(0us, 5s), [agent, generation = agent->generation] {
    if (agent->generation == generation && !agent->stopping)
      agent->session->send(SessionNode{generation, {.workers = {}, .wants_standby = true}});
  });
}

void Node::execute(Agent&, const StandBy& action) {
  agent_->process->after(simulation_.random.duration(0us, 5s), [agent = agent_, generation = action.generation] {
    agent->session->send(SessionNode{generation, {.workers = {}, .stands_by = true}});
  });
}

void Node::execute(Agent& agent, const KeepRound& action) {
  simulation_.note(spec_.name, "leaves the workers of generation {} running", agent.generation);
  if (agent.running > 0) simulation_.checker.workers_kept(agent.facts, agent.session->lease_end());
  agent.session->keep_round(action.done);
}

void Node::execute(Agent& agent, const GiveUpRound&) {
  agent.session->give_up_round();
}

std::shared_ptr<Worker> Node::make_worker(Agent& agent, int local_rank, const Worker::Plan& plan) {
  const WorkerEnvSpec exported{.run_id = spec_.policy.run_id, .max_restarts = spec_.policy.max_restarts};
  const auto environment = worker_environment(Environment(), exported, agent.round, local_rank, "");
  const auto exited = [this, weak = std::weak_ptr(agent_), local_rank](int code) {
    if (const auto life = weak.lock()) worker_exited(life, local_rank, code);
  };
  return std::make_shared<Worker>(simulation_, host_, find_host_, environment, agent.workers_job, plan, exited);
}

// Sometimes workers turn out to be unable to go on.
void Node::execute(Agent& agent, const ChangeRound& action) {
  const auto& round = action.change.round;
  simulation_.note(spec_.name, "goes on in generation {} with {} nodes", round.generation, round.members.size());
  simulation_.checker.round_changed(*agent.facts, agent.job, round);
  const bool store_moves = agent.round.store() != round.store();
  agent.round = round;
  agent.self = round.members.at(static_cast<std::size_t>(round.self));
  for (const auto& worker : agent.workers) {
    worker->expect_newcomers();
    if (store_moves) worker->follow_store(round.master_addr, round.master_port);
  }
  if (agent.self.group_rank == 0 && simulation_.random.one_in(16))
    agent.session->send(SessionRecovery{round.generation, "rank 1 cannot recover"});
}

void Node::execute(Agent& agent, const ReplaceWorkers& action) {
  simulation_.note(spec_.name, "starts {} replacements of generation {}", action.local_ranks.size(), agent.generation);
  simulation_.checker.workers_replaced(*agent.facts, agent.job, agent.generation, action.generation, action.local_ranks,
                                       agent.failed);
  for (const int local_rank : action.local_ranks) {
    auto plan = draw_plan();
    plan.replacement = true;
    auto& worker = agent.workers.at(static_cast<std::size_t>(local_rank));
    worker = make_worker(agent, local_rank, plan);
    if (agent.round.group_generation > 0) worker->expect_newcomers();
    worker->start();
    agent.failed.erase(local_rank);
    ++agent.running;
  }
}

// Some workers have not announced that they can recover.
void Node::execute(Agent& agent, const AnswerRecovery& action) {
  const bool able = !simulation_.random.one_in(8);
  agent.session->send(SessionRecovery{action.generation, !able && action.refusal.empty() ? "no" : action.refusal});
}

void Node::execute(Agent& agent, const StopWorkers& action) {
  simulation_.note(spec_.name, "stops its workers with signal {}", action.signal_number);
  agent.facts->kept_until.reset();
  if (std::exchange(agent.stopping, true)) return;
  if (agent.running == 0) {
    agent.process->after(0s, [this, life = agent_] { act(*life, life->state.on_workers_stopped()); });
    return;
  }
  for (std::size_t i = 0; i < agent.workers.size(); ++i)
    if (agent.workers[i]->alive()) stop_worker(agent_, i, simulation_.random.duration(0us, spec_.longest_stop));
}

void Node::execute(Agent& agent, const KillWorkers&) {
  for (std::size_t i = 0; i < agent.workers.size(); ++i)
    if (agent.workers[i]->alive()) stop_worker(agent_, i, 0s);
}

void Node::execute(Agent& agent, const ReportSuccess& action) {
  agent.session->send(SessionSuccess{action.generation});
}

void Node::execute(Agent& agent, const ReportFailure& action) {
  agent.session->send(SessionFailure{action.generation, wall_clock_us(), action.survivors, action.failures});
}

void Node::execute(Agent& agent, const AskToLeave& action) {
  agent.session->send(LeaveRequest{action.reason});
}

// They leave the others' process group, which takes a while.
void Node::execute(Agent& agent, const ReleaseWorkers&) {
  execute(agent, StopWorkers{});
}

void Node::execute(Agent& agent, const LeaveJob& action) {
  agent.session->leave(action.reason);
  if (agent.server) agent.server->announce_shutdown(action.reason);
}

void Node::execute(Agent& agent, const Finish& action) {
  simulation_.note(spec_.name, "ends with {}", action.exit_code);
  agent.facts->exiting = true;
  agent.facts->exit_code = action.exit_code;
  ended_by_result_ = agent.result;
  simulation_.checker.agent_ended(*agent.facts, agent.job, agent.result);
  stop_store(agent);
  // Frames sent last are still delivered, and others may need the endpoint to get the job result. The pointer is weak:
  // the server of an agent that is killed meanwhile must not keep it alive.
  const auto leave = [this, life = std::weak_ptr(agent_)] {
    if (life.lock() == agent_ && up()) end_life(false);
  };
  if (!agent.server) return agent.process->after(0s, leave);
  agent.server->drain(leave);
  agent.process->after(drain_timeout, leave);
}

// ---- workers

Worker::Plan Node::draw_plan() {
  RandomSource& random = simulation_.random;
  const bool fails = workers_fail_ && random.one_in(spec_.one_worker_fails_in);
  return {.start_up = random.duration(0us, 500ms),
          .work = random.duration(100ms, spec_.longest_work),
          .exit_code = fails ? random.between(1, 9) : 0};
}

// Notifies the agent, which may be stopped.
void Node::worker_exited(const AgentPtr& agent, int local_rank, int exit_code) {
  const auto generation = agent->generation;
  agent->process->after(0s, [this, agent, local_rank, exit_code, generation] {
    if (agent->generation == generation) reap(*agent, local_rank, exit_code);
  });
}

void Node::reap(Agent& agent, int local_rank, int exit_code) {
  --agent.running;
  const bool was_stopping = agent.stopping;
  if (agent.running == 0) {
    agent.facts->kept_until.reset();
    simulation_.checker.workers_ended(*agent.facts);
  }
  if (!was_stopping && exit_code != 0) {
    simulation_.note(spec_.name, "worker {} failed with {}", local_rank, exit_code);
    agent.failed.insert(local_rank);
    const auto& self = agent.self;
    return act(agent, agent.state.on_workers_failed({{.rank = self.first_rank + local_rank,
                                                      .local_rank = local_rank,
                                                      .group_rank = self.group_rank,
                                                      .host = spec_.name,
                                                      .exit_code = exit_code,
                                                      .time_us = wall_clock_us()}},
                                                    std::vector<WorkerCondition>(agent.workers.size())));
  }
  if (agent.running > 0 || (!was_stopping && !agent.failed.empty())) return;
  act(agent, was_stopping ? agent.state.on_workers_stopped() : agent.state.on_workers_succeeded());
}

void Node::stop_worker(const AgentPtr& agent, std::size_t index, Duration after) {
  const auto worker = agent->workers[index];
  simulation_.time.after(after, [this, agent, worker, index] {
    if (!worker->alive()) return;
    worker->kill();
    worker_exited(agent, static_cast<int>(index), 143);
  });
}

std::int64_t Node::wall_clock_us() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(simulation_.time.now().time_since_epoch()).count();
}

}  // namespace ddprun::testing
