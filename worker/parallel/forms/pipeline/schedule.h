#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::pipeline {

// Pipeline parallelism: a model is cut into stages, each rank computes some of them, and a batch passes through in
// micro-batches. A schedule says in which order each rank computes; what it sends and receives follows from that.

enum class ScheduleKind : std::uint8_t {
  gpipe,  // all forward passes, then all backward passes (Huang et al. 2019)
  // First as many forward passes as stages follow, then one forward and one backward pass in turn (PipeDream-Flush,
  // Narayanan et al. 2021).
  one_forward_one_backward,
  interleaved,  // 1f1b with several stages a rank (Megatron-LM, Narayanan et al. 2021)
  zero_bubble,  // 1f1b with the gradients of weights computed apart, where a rank would wait (ZB-H1, Qi et al.
                // 2023)
};

// Parses gpipe, 1f1b, interleaved or zero_bubble. Throws Errc::usage for another name.
ScheduleKind parse_schedule(std::string_view name);
std::vector<std::string_view> schedule_names();

enum class ActionKind : std::uint8_t {
  forward,
  backward,         // gradients of the stage's input and of its weights
  backward_input,   // only the gradient of the input, for which the stage before waits
  backward_weight,  // the gradients of weights that backward_input() has left
};

struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};
// Returns a text such as "forward of micro-batch 3 at stage 1".
std::string to_string(const Action& action);

struct ScheduleOptions {
  int ranks = 1;
  int micro_batches = 1;
  int virtual_stages = 1;  // stages of each rank; more than one only with interleaved
};

// Stage s belongs to rank s modulo the number of ranks. At each stage micro-batches pass in ascending order, forward
// and backward, so that sums of gradients have the order of one process.
struct Schedule {
  int ranks = 1;
  int stages = 1;
  int micro_batches = 1;
  std::vector<std::vector<Action>> actions;  // by rank

  int rank_of(int stage) const { return stage % ranks; }
};

// Plans a schedule; a pure function. The interleaved schedule fills the pipeline best if micro_batches is a multiple of
// ranks. Throws Errc::usage for sizes below 1, and for virtual_stages that do not go with the kind.
Schedule plan_schedule(ScheduleKind kind, const ScheduleOptions& options);

}  // namespace ddprun::pipeline
