#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/parallel/sharding/placement.h"

namespace ddprun::sharding {

// Used in place of a process for a rank that has ended, or a file that nobody has.
inline constexpr int absent = -1;

// The places of a state's tensors. The ranks of a mesh may be numbered differently from the processes that execute the
// plan, as they are when a job grows, shrinks or loses a rank.
struct StateLayout {
  std::vector<Placement> placements;  // by tensor; their meshes are of the same ranks
  std::vector<int> processes = {};    // by rank of the meshes: its process, or absent; empty: the same number
  // A process has one rank at most, unless it reads files.
  // By tensor, and by part in the order of PlacedTensor::parts(): the only rank that has it, as a part is written to
  // one file. Empty: all that the placements name.
  std::vector<std::vector<int>> writers = {};
};

// The old and the new placement of each tensor. A process is a rank of the group that executes the plan.
struct Redistribution {
  std::vector<TensorSpec> tensors;
  StateLayout from;
  StateLayout to;
  // Set if there are files with the parts of ranks: StateLayout::processes has the process that reads a rank's file.
  // They are read for what no living process has.
  std::optional<StateLayout> files = {};
};

// A range that a process gets. Offsets are in elements, in the part of the tensor that the process has there.
struct Transfer {
  std::size_t tensor = 0;
  // 0: the source has it from the start. Otherwise the source forwards what it gets in an earlier step.
  int step = 0;
  IndexRange range;  // in the whole tensor
  int source = 0;    // a process; the destination itself for what it already has, or reads
  int destination = 0;
  int file = absent;              // the rank whose file the source reads the range from
  std::int64_t read_offset = 0;   // in the source's part, or the file's; with step > 0 of the new layout
  std::int64_t write_offset = 0;  // in the destination's part of the new layout

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

// A range that no living process and no file has.
struct MissingRange {
  std::size_t tensor = 0;
  IndexRange range;
  friend bool operator==(const MissingRange&, const MissingRange&) = default;
};

struct RedistributionPlan {
  std::vector<Transfer> transfers;    // those from and to one process, by tensor, step and range
  std::vector<MissingRange> missing;  // the same in the plans of all processes
};

// One process' part of the plan by which each process gets what it is to have. Pure and deterministic: every process
// computes its part by itself, and they agree. Every element arrives exactly once.
//
// Elements that several processes have are sent by those that have sent least so far, and receivers forward those that
// several want: in all, none sends more than twice what the busiest one has to, but for rounding. A range of elements
// that more than 64 processes have or want is divided into fewer chunks than there are processes, so that their loads
// are even only if there are many tensors.
// Cost: time grows with the ranges of all tensors that lie together in both layouts, and with the processes that have
// or want them; memory with those of the largest tensor, and with this process' transfers.
// Errors: Errc::usage for a number of placements or processes that does not fit, and those of PlacedTensor.
RedistributionPlan plan_redistribution(const Redistribution& redistribution, int process);

}  // namespace ddprun::sharding
