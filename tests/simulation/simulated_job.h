#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/node.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

namespace ddprun::testing {

// What to simulate. The same choice is the same story on every machine.
struct Schedule {
  std::uint64_t seed = 1;
  int max_nodes = 12;      // most schedules have up to 12 nodes, some as many as this
  bool all_nodes = false;  // exactly max_nodes, all of them wanted in one round
  bool trace = false;      // tell the story on standard output
};

// One job under virtual time: the real Membership, AgentState and StoreState (with the real codecs) on machines that
// join, are stopped, killed, cut off, lose power and come back, over a network that delays. All of it is drawn from the
// seed. After a time of chaos the machines that are left behave, and the job has to come to its end.
//
// run() throws std::logic_error naming the promise that was broken (referee.h), or that no end came within a bound.
class SimulatedJob {
 public:
  explicit SimulatedJob(const Schedule& schedule);
  void run();

  const Referee::Counts& counts() { return world_.referee.counts(); }

 private:
  void build(const Schedule& schedule);
  JobPolicy draw_policy(const Schedule& schedule);
  Host& host(const std::string& name);
  void start_later(Node& node, std::chrono::microseconds longest);
  void disturb();
  void disturb_node(Node& node);
  void disturb_server();
  bool chaos() const { return world_.time.now() < chaos_end_; }
  bool over() const;
  std::string who_is_left() const;

  World world_;
  std::map<std::string, Host> hosts_;
  std::vector<std::unique_ptr<Node>> nodes_;
  ProcessPtr server_process_;  // of a server that is no agent's
  std::shared_ptr<Server> server_;
  Host* endpoint_ = nullptr;
  Time chaos_end_;
  bool large_ = false;  // every node in one round, and little happens to it
  int starting_ = 0;    // nodes that are to be started yet
};

}  // namespace ddprun::testing
