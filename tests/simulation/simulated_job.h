#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/node.h"
#include "tests/simulation/server.h"
#include "tests/simulation/simulation.h"

namespace ddprun::testing {

// The parameters of a simulation. Equal parameters give the same sequence of events on every machine.
struct Schedule {
  std::uint64_t seed = 1;
  int max_nodes = 12;      // most schedules have up to 12 nodes, some as many as this
  bool all_nodes = false;  // exactly max_nodes, all of them in one round
  bool trace = false;      // print every event on standard output
};

// One job under virtual time: the real Membership, AgentState and StoreState (with the real codecs) on machines that
// join, are stopped, killed, partitioned, lose power and rejoin, over a network with delays. The seed determines all
// events. After a period of faults the remaining machines run without faults, and the job has to end.
//
// run() throws std::logic_error naming the violated invariant (invariant_checker.h), or if the job does not end in
// time.
class SimulatedJob {
 public:
  explicit SimulatedJob(const Schedule& schedule);
  void run();

  const InvariantChecker::Counts& counts() { return simulation_.checker.counts(); }

 private:
  void build(const Schedule& schedule);
  JobPolicy draw_policy(const Schedule& schedule);
  Host& host(const std::string& name);
  void start_later(Node& node, std::chrono::microseconds longest);
  void disturb();
  void disturb_node(Node& node);
  void disturb_server();
  void restart_server(Duration after);
  bool in_fault_period() const { return simulation_.time.now() < faults_end_; }
  bool over() const;
  std::string remaining_nodes_text() const;

  Simulation simulation_;
  std::map<std::string, Host> hosts_;
  std::vector<std::unique_ptr<Node>> nodes_;
  ProcessPtr server_process_;  // that of a server outside the agents
  std::shared_ptr<Server> server_;
  Host* endpoint_ = nullptr;
  Time faults_end_;
  bool large_ = false;  // all nodes in one round, few faults
  int starting_ = 0;    // nodes with a start scheduled
};

}  // namespace ddprun::testing
