#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/agent_state.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"
#include "tests/simulation/agent_session.h"
#include "tests/simulation/network.h"
#include "tests/simulation/server.h"
#include "tests/simulation/simulation.h"
#include "tests/simulation/worker.h"
#include "tests/simulation/worker_store.h"

namespace ddprun::testing {

struct NodeSpec {
  std::string name;
  int nproc = 1;
  std::optional<int> node_rank;
  JobPolicy policy;
  bool serves_endpoint = false;
  // True: one store for the workers of all rounds, as with static; otherwise one per round.
  bool lasting_store = false;
  Duration store_timeout{};                  // time for which to redial after a session was lost
  std::chrono::microseconds longest_stop{};  // the longest time that a worker takes to end after a signal
  std::chrono::microseconds longest_work{};
  int one_worker_fails_in = 7;
  RestartRules rules = {};
};

// A machine on which an agent is started any number of times. The agent is the real AgentState; this class is the
// counterpart of Agent and WorkerGroup.
class Node {
 public:
  Node(Simulation& simulation, NodeSpec spec, Host& host, Host& endpoint, FindHost find_host);

  bool up() const { return agent_ && agent_->process->alive(); }
  bool restartable() const { return !up() && !ended_by_result_; }
  const std::string& name() const { return spec_.name; }
  // The facts of the current agent. REQUIRES: it has been started.
  const AgentFacts& facts() const { return *agent_->facts; }

  void start();
  void kill();  // SIGKILL to the agent; its guardian kills the workers
  void lose_power();
  void signal(int number);
  void freeze(Duration duration);  // freezes the agent, not its workers
  void cut_off(Duration duration);
  // From now on no worker fails.
  void disable_worker_failures() { workers_fail_ = false; }

 private:
  // One run of the agent.
  struct Agent {
    explicit Agent(const RestartRules& rules) : state({}, rules) {}

    ProcessPtr process;
    AgentFactsPtr facts;
    AgentState state;
    std::shared_ptr<AgentSession> session;
    std::shared_ptr<Server> server;
    std::shared_ptr<WorkerStore> store;
    std::uint16_t store_port = 0;
    int job = -1;
    int workers_job = -1;  // the job as it was when the workers of the round started
    std::vector<std::shared_ptr<Worker>> workers;
    std::int64_t generation = 0;  // generation of the workers
    Round round;
    RoundMember self;
    int running = 0;       // workers that have not exited
    std::set<int> failed;  // local ranks whose workers failed and have not been replaced
    bool stopping = false;
    bool result = false;
    std::deque<AgentAction> queue;
    bool acting = false;
  };
  using AgentPtr = std::shared_ptr<Agent>;

  void handle_event(Agent& agent, int job, const RendezvousEvent& event);
  void act(Agent& agent, AgentActions actions);
  void execute(Agent& agent, const PrepareRound& action);
  void execute(Agent& agent, const StartWorkers& action);
  void execute(Agent& agent, const ChangeRound& action);
  void execute(Agent& agent, const StandBy& action);
  void execute(Agent& agent, const StopWorkers& action);
  void execute(Agent& agent, const KillWorkers& action);
  void execute(Agent& agent, const ReportSuccess& action);
  void execute(Agent& agent, const ReportFailure& action);
  void execute(Agent& agent, const AnswerRecovery& action);
  void execute(Agent& agent, const ReplaceWorkers& action);
  void execute(Agent& agent, const KeepRound& action);
  void execute(Agent& agent, const GiveUpRound& action);
  void execute(Agent& agent, const LeaveJob& action);
  void execute(Agent& agent, const AskToLeave& action);
  void execute(Agent& agent, const ReleaseWorkers& action);
  template <class Action>
  void execute(Agent&, const Action&) {}  // actions that do not concern rounds
  void execute(Agent& agent, const Finish& action);

  void announce_recoverable(Agent& agent);
  void announce_once_they_work(const AgentPtr& agent, std::int64_t generation);
  void want_standby(const AgentPtr& agent);
  Worker::Plan draw_plan();
  std::shared_ptr<Worker> make_worker(Agent& agent, int local_rank, const Worker::Plan& plan);
  void worker_exited(const AgentPtr& agent, int local_rank, int exit_code);
  void reap(Agent& agent, int local_rank, int exit_code);
  void stop_worker(const AgentPtr& agent, std::size_t index, Duration after);
  void end_life(bool with_machine);
  void serve_endpoint(Agent& agent);
  static void stop_store(Agent& agent);
  std::int64_t wall_clock_us() const;

  Simulation& simulation_;
  const NodeSpec spec_;
  Host& host_;
  Host& endpoint_;
  const FindHost find_host_;
  AgentPtr agent_;
  int lives_ = 0;
  bool workers_fail_ = true;
  bool ended_by_result_ = false;
  Time disturbed_until_{};
};

}  // namespace ddprun::testing
