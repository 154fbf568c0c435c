#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/node_report.h"
#include "rendezvous/progress/training_record.h"

// The state of a job for those who watch it: /metrics, the page, ddprun top, and the record from which ddprun report
// makes a page. Plain values. Times are milliseconds since the epoch by the agent's clock; a number that is not known
// is NaN.
namespace ddprun::dashboard {

using Milliseconds = std::chrono::milliseconds;
using Version = std::uint64_t;  // grows with each change of the view; 0: nothing has happened

// The facts that do not change while the agent runs.
struct JobFacts {
  std::string run_id;
  std::string program;
  std::string host;     // host of this agent
  std::string version;  // version of ddprun
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
};

// The present activity of the job.
enum class State : std::uint8_t { forming, starting, running, training, recovering, succeeded, failed };
inline constexpr std::array<std::string_view, 7> state_names = {"forming",    "starting",  "running", "training",
                                                                "recovering", "succeeded", "failed"};
inline std::string_view name_of(State state) {
  return state_names.at(static_cast<std::size_t>(state));
}

// The parts of the job's time. Training is a step's time without its data part; the other parts are lost. After a
// failure all workers start again (restart), or the others wait for a replacement to get their state (heal).
enum class Part : std::uint8_t { training, startup, data, checkpoint, detect, agree, restart, heal, replay, idle };
inline constexpr std::array<std::string_view, 10> part_names = {"training", "startup", "data", "checkpoint", "detect",
                                                                "agree",    "restart", "heal", "replay",     "idle"};
inline std::string_view name_of(Part part) {
  return part_names.at(static_cast<std::size_t>(part));
}
using TimeByPart = std::array<double, part_names.size()>;  // seconds

struct Point {
  Version version = 0;
  Milliseconds time{};
  std::int64_t step = 0;
  double loss = TrainingRecord::unknown;
  double samples_per_s = TrainingRecord::unknown;
};

struct Evaluation {
  Version version = 0;
  std::int64_t step = 0;
  double loss = TrainingRecord::unknown;
  double accuracy = TrainingRecord::unknown;
};

struct RankView {
  Version version = 0;  // version of its last change
  int node = -1;        // group rank
  int local_rank = 0;
  std::int64_t pid = 0;    // 0: not known
  int replacements = 0;    // processes of this round that replaced one that had failed
  Milliseconds started{};  // when its process was started; 0: not known
  enum class State : std::uint8_t { unknown, running, stopped, succeeded, failed } state = State::unknown;
  double lateness = TrainingRecord::unknown;                    // seconds a step, to two digits
  std::array<double, 3> shares{TrainingRecord::unknown, 0, 0};  // data, compute, communication, as shares of its steps
};
inline constexpr std::array<std::string_view, 5> rank_state_names = {"unknown", "running", "frozen", "done", "failed"};

// The collectives of one kind and size of a process group (OperationTiming), over its ranks.
struct CollectiveView {
  std::string group;
  std::string operation;
  std::int64_t bytes = 0;
  std::int64_t count = 0;                          // number of timed ones, at all ranks
  double seconds = 0;                              // the sum of these
  double median = TrainingRecord::unknown;         // median of the ranks' medians
  double bus_bandwidth = TrainingRecord::unknown;  // bytes a second
  int slowest = -1;                                // the rank for which the others wait; -1: none
  double wait = TrainingRecord::unknown;           // the time that they wait in each
};

struct NodeView {
  std::string host;
  std::string address;
  int group_rank = -1;  // -1: not a member of the round
  int first_rank = -1;
  int workers = 1;
  Milliseconds heard{};  // time of its last heartbeat; 0: this agent, or not known
  std::optional<NodeUsage> usage = {};
};

// One round and, unless it is the first, the recovery by which it began; or a recovery in the same round, by
// replacements. A duration is less than 0 until it is known.
struct GenerationView {
  std::int64_t generation = 0;
  int replacement = 0;  // the number of the replacement in the round; 0: it is a round
  std::string reason;
  Milliseconds proposed{};
  Milliseconds started{};
  int world_size = 0;
  int restarts_used = 0;
  bool recovers = false;        // it follows another one, by a recovery
  std::int64_t from_step = -1;  // the last one done when its training began
  Milliseconds detect{-1};      // from the failure, by its worker's clock, until the agent knew
  Milliseconds agree{-1};       // until all nodes were ready for the round, with the end of the former workers
  Milliseconds restart{-1};     // until the first step, where all workers have started again
  Milliseconds heal{-1};        // until the next step, where the others have kept their processes
  Milliseconds replay{-1};      // until the training had repeated the lost steps
};

struct EventView {
  Version version = 0;
  Milliseconds time{};
  std::string kind;  // "fault", "round", "recovered", "checkpoint", "node", "end"
  std::string text;
  std::int64_t step = -1;  // the training's step then; -1: none
};

// The faults before a recovery: a worker's exit, its end by a signal or by a shortage of memory, a frozen worker, a
// node or server that does not answer any more, nodes that join or leave.
inline constexpr std::array<const char*, 6> fault_names = {"exit", "signal", "oom", "freeze", "cut", "membership"};

// The sums of all generations.
struct Totals {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;  // 0: the samples have none
  double step_seconds = 0;
  std::array<std::int64_t, TrainingRecord::step_bounds.size() + 1> step_counts{};
  std::map<std::string, std::int64_t> recoveries;                   // by fault, see fault_names
  std::map<std::string, std::vector<Milliseconds>> recovery_times;  // durations by phase, of each recovery that had it
  std::vector<Milliseconds> complete_recoveries;                    // durations of those after which the job trained
  std::int64_t repeated_steps = 0;  // steps that were computed again, interrupted ones included
};

struct JobView {
  JobFacts facts;
  Version version = 0;
  Milliseconds now{};
  Milliseconds began{};
  State state = State::forming;
  std::string waiting_for;  // forming: one line
  std::string result;       // the way in which the job ended
  Milliseconds heard{};     // when the job answered last; 0: this process runs it
  std::string silence;      // why it does not answer; empty: it does
  std::int64_t generation = -1;
  int world_size = 0;
  int restarts_used = 0;
  int replacements = 0;                    // recoveries in which single workers were replaced, in the same round
  std::optional<TrainingRecord> training;  // that of one rank of this node
  Milliseconds checkpoint{};               // the last one that is known; 0: none
  TimeByPart seconds{};
  Totals totals;
  std::vector<Point> points;
  std::vector<Evaluation> evaluations;
  std::vector<RankView> ranks;
  std::vector<NodeView> nodes;
  std::vector<GenerationView> generations;
  std::vector<EventView> events;
  std::vector<CollectiveView> collectives;  // those with the longest times first
  std::vector<std::string> waits;           // a line for each process group that is blocked: who waits for whom
  std::map<std::string, std::uint64_t> store_operations;  // those of the workers' store, where this agent serves it

  int recoveries() const {
    return replacements + static_cast<int>(generations.empty() ? 0 : generations.back().generation);
  }
};

// The part of the time since the job's first step that was training, 0 .. 1; NaN before.
double goodput(const JobView& view);

// "training, step 1,204 of 3,000, 3,120 samples/s, goodput 97.9 %, 2 recoveries, checkpoint 40 s old, 12 min left"
std::string sentence(const JobView& view);

// "40 s", "2 min 05 s", "1 h 04 min"
std::string duration_text(double seconds);
// "1,204"
std::string number_text(std::int64_t number);

}  // namespace ddprun::dashboard
