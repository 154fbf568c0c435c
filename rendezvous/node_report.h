#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// The training as a worker reports it: the whole job's and, from lateness on, its rank's. An unknown number is NaN.
struct TrainingReport {
  std::int64_t step = 0;  // the last one done
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  // 1 is the first
  double loss = 0;
  double samples_per_s = 0;
  double seconds_left = 0;
  double lateness = 0;      // seconds a step that this rank takes longer on its own than the median of all ranks
  double step_seconds = 0;  // seconds of a step, the mean at this rank
  double data = 0;          // shares of that time, 0 .. 1
  double compute = 0;
  double communication = 0;
};

// The state of one worker, reported while the round lasts.
struct WorkerReport {
  enum class State : std::uint8_t { running, stopped, ended };  // stopped: by SIGSTOP and the like
  int local_rank = 0;
  std::int64_t pid = 0;
  State state = State::running;
  int exit_code = 0;                            // if it has ended
  int signal_number = 0;                        // the signal that ended or stopped it
  std::optional<TrainingReport> training = {};  // nullopt: the worker has reported nothing, or nothing new
};

// The use of a node's machine, in bytes and bytes a second.
struct NodeUsage {
  int processors = 0;
  double busy = 0;  // number of busy processors
  std::int64_t memory = 0;
  std::int64_t memory_used = 0;
  double received = 0;  // by all network interfaces but the loopback interface
  double sent = 0;
  std::int64_t shared_memory = 0;  // size of /dev/shm
  std::int64_t shared_memory_used = 0;
};

// The report of a node about itself while a round lasts.
struct NodeReport {
  std::vector<WorkerReport> workers;  // those that have changed
  // Workers that this node replaced by its own decision, in all rounds; they count as restarts.
  int replaced = 0;
  std::optional<NodeUsage> usage = {};  // nullopt: nothing new
  // A node of the round: whether all of its workers train, and say that a process may stand by for one of them
  // (TrainingRecord). nullopt: nothing new.
  std::optional<bool> wants_standby = {};
  // A spare: whether all of its processes that stand by are ready. nullopt: nothing new.
  std::optional<bool> stands_by = {};
  // Group rank 0: the workers of the round, by name, that have announced in their store that they have got the state of
  // the training from others. Empty: nothing new.
  std::vector<std::string> got_state = {};
};

}  // namespace ddprun
