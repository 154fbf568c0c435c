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

// "kill:29s,freeze:2m/5s,cut:5m;seed=7": faults with their mean intervals, and the duration of a freeze or a cut (10 s
// where it is left out). Times have a unit: ms, s, m or h. Throws Errc::usage.
FaultPlan parse_faults(std::string_view text);

struct Fault {
  FaultKind kind = FaultKind::kill;
  std::chrono::milliseconds duration{};
  std::uint64_t choice = 0;  // an equally distributed number that chooses the worker
};

// The times of the faults: each follows the last one of its rule after half to one and a half of the interval, so that
// they do not keep step with the job. The same plan gives the same faults at each run, others on each node. No clock.
//
// A value. Threads: not thread-safe. Errors: none.
class FaultSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // REQUIRES: the plan has a rule.
  FaultSchedule(const FaultPlan& plan, int node, Time now);

  // The time of the next fault.
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

  std::vector<Entry> entries_;
};

}  // namespace ddprun
