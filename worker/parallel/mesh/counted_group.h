#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "worker/comm/process_group.h"

namespace ddprun {

// The ranks of an axis that compute the passes of a model together, and what these passes have exchanged.
//
// Ownership: the group outlives this object, which outlives the tapes of the operations that use it.
// Threads: one at a time. Errors: those of the group.
class CountedGroup {
 public:
  explicit CountedGroup(ProcessGroup& group) : group_(group) {}
  CountedGroup(const CountedGroup&) = delete;
  CountedGroup& operator=(const CountedGroup&) = delete;

  ProcessGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // Calls exchange(), which returns when this rank has sent so many bytes and received what it needs.
  template <class Exchange>
  void run(std::size_t bytes, Exchange exchange) {
    const auto start = std::chrono::steady_clock::now();
    exchange();
    waited_ += std::chrono::steady_clock::now() - start;
    bytes_ += bytes;
  }

  // The bytes that the exchanges have sent from this rank: 2 (n - 1) / n of the memory of an allreduce, half of that of
  // an allgather or a reduce-scatter. They do not depend on the algorithm that the group has chosen.
  std::uint64_t bytes() const { return bytes_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  ProcessGroup& group_;
  std::uint64_t bytes_ = 0;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun
