#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "rendezvous/progress/rank_record.h"
#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// The times that the collectives of a rank take, by kind and size. An exact clock costs as much as the smallest
// collectives do, so about one in eight is timed, chosen by its number: all ranks of a group time the same ones, and a
// rank for which the others wait has the shortest times.
//
// Ownership: plain memory, a KiB for each kind and size. Threads: any. Errors: none.
class OperationTimes {
 public:
  // Numbers spread evenly (Fibonacci hashing), so that no repeated pattern of collectives is timed in only one place.
  static constexpr bool chosen(std::uint64_t sequence) { return sequence * 0x9e3779b97f4a7c15ull >> 61 == 0; }

  void add(const Operation& operation, std::chrono::nanoseconds duration);
  // Returns those with the longest sum of times, at most OperationTiming::most.
  std::vector<OperationTiming> read() const;

 private:
  // The times of one kind, with sizes up to a power of two.
  struct KindTimes {
    OpKind kind = OpKind::barrier;
    int size_class = 0;
    std::uint64_t bytes = 0;  // the sum
    std::uint64_t count = 0;
    double seconds = 0;                 // the sum
    std::vector<std::uint32_t> counts;  // the numbers of collectives by duration
  };
  static OperationTiming timing_of(const KindTimes& row);

  mutable std::mutex mutex_;
  std::vector<KindTimes> rows_;
};

}  // namespace ddprun::comm
