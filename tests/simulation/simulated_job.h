#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ddprun/rendezvous/membership/membership.h"

namespace ddprun::testing {

// One job under virtual time: a Membership, and agents that join, stop, get ready, run, fail, freeze, die with or
// without a word, and come back, over a network that delays and repeats. All of it is drawn from the seed. After a time
// of chaos the agents that are left behave, and the job has to come to its end.
//
// run() throws std::logic_error naming what was broken:
//   ranks are unique and dense; a surviving node keeps its rank; generations grow
//   a round starts only when each of its members has said that it is ready for this very round
//   no agent is in two rounds at once
//   no more restarts than the budget; none without a failure
//   all hear the same verdict, nothing follows it, and it comes within a bound
class SimulatedJob {
 public:
  explicit SimulatedJob(std::uint64_t seed);
  void run();

  struct Counts {
    int proposals = 0, starts = 0, drops = 0, failures = 0, verdicts = 0, successes = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  using Time = Membership::Time;
  using Duration = Membership::Clock::duration;

  struct Agent {
    std::string id;
    NodeInfo info;
    bool up = false;
    int life = 0;  // raised at each death and each new session: what was on the way to an earlier life is lost
    Time frozen_until{};
    Time last_sent{}, last_heard{};  // the network keeps the order of one direction
    std::optional<std::int64_t> proposed;
    std::optional<std::int64_t> running;
  };

  // Drawing.
  bool chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(random_) < probability; }
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  Duration delay(int low_ms, int high_ms) { return std::chrono::milliseconds(between(low_ms, high_ms)); }
  JobPolicy draw_policy();

  // Time.
  void at(Time when, std::function<void()> action) { events_.emplace(when, std::move(action)); }
  void at_server(const std::shared_ptr<Agent>& agent, std::function<MembershipMessages()> event);
  void at_agent(const std::shared_ptr<Agent>& agent, std::function<void()> action);
  void in_life(const std::shared_ptr<Agent>& agent, int life, Time when, std::function<void()> action);
  void run_at_server(std::function<void()> action);
  void tick();

  // Agents.
  void start(const std::shared_ptr<Agent>& agent);
  void beat(const std::shared_ptr<Agent>& agent);
  void say_ready(const std::shared_ptr<Agent>& agent, std::int64_t generation);
  void finish_running(const std::shared_ptr<Agent>& agent, std::int64_t generation);
  void die(const std::shared_ptr<Agent>& agent);
  void disturb();

  // What the server says.
  void take(const MembershipMessages& messages);
  void check_proposed(const std::vector<std::string>& to, const Round& round);
  void check_started(const Round& round);
  void check_ended(const Verdict& verdict);
  void hear(const std::shared_ptr<Agent>& agent, const MembershipMessage::What& what);
  bool still_chaos() const { return now_ < chaos_end_; }

  std::mt19937_64 random_;
  JobPolicy policy_;
  Membership membership_;
  Time now_{std::chrono::hours(1)};
  Time chaos_end_;
  Time server_frozen_until_{};
  std::multimap<Time, std::function<void()>> events_;
  std::map<std::string, std::shared_ptr<Agent>> agents_;

  std::optional<Round> last_round_;
  std::map<std::string, int> sessions_;  // life with which each node is known to the server
  std::set<std::string> stayed_;         // members of last_round_ that have not gone since
  std::set<std::string> said_ready_;     // for the generation of last_round_
  std::set<std::string> said_success_;
  std::optional<Verdict> verdict_;
  Counts counts_;
};

}  // namespace ddprun::testing
