#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

// Faults that ddprun injects into its own job (--chaos), and when.
namespace ddprun {

enum class FaultKind : std::uint8_t {
  kill,    // SIGKILL for a worker
  freeze,  // SIGSTOP for a worker, and SIGCONT after a duration
  cut,     // no packet passes the node's network links for a duration
  leave,   // the node leaves the job
  join,    // the node, which has left, joins the job again
};

struct FaultRule {
  FaultKind kind = FaultKind::kill;
  std::chrono::milliseconds interval{};  // the mean time between two such faults
  std::chrono::milliseconds duration{};  // of a freeze or a cut
  bool operator==(const FaultRule&) const = default;
};

struct FaultPlan {
  std::vector<FaultRule> rules;
  std::uint64_t seed = 0;

  bool has(FaultKind kind) const;
};

// "kill:29s,freeze:2m/5s,cut:5m,leave:3m,join:1m;seed=7": faults with their mean intervals, and the duration of a
// freeze or a cut (10 s where it is left out). Times have a unit: ms, s, m or h. Throws Errc::usage, also for join
// without leave.
FaultPlan parse_faults(std::string_view text);

struct Fault {
  FaultKind kind = FaultKind::kill;
  std::chrono::milliseconds duration{};
  std::uint64_t choice = 0;  // an equally distributed number that chooses the worker
};

// The times of the faults: each follows the last one of its rule after half to one and a half of the interval, so that
// they do not keep step with the job. The same plan gives the same faults at each run, others on each node. No clock.
//
// A node that has left gets nothing but the join, which follows the leave as a fault follows the last one of its rule;
// the leave after it follows the join, and so do the faults that were due meanwhile.
//
// A value. Threads: not thread-safe. Errors: none.
class FaultSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // REQUIRES: the plan has a rule.
  FaultSchedule(const FaultPlan& plan, int node, Time now);

  // The node has left the job, or takes part in it again.
  void left(Time now);
  void joined(Time now);
  bool away() const { return away_; }

  // The time of the next fault; Time::max() if there is none.
  Time next() const;
  // Takes the fault that is due; nullopt: none is.
  std::optional<Fault> take(Time now);

 private:
  struct Entry {
    FaultRule rule;
    std::mt19937_64 random;
    Time due;
  };
  static void postpone(Entry& entry, Time now);
  const Entry* earliest() const;

  std::vector<Entry> entries_;
  bool away_ = false;
};

}  // namespace ddprun
