#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/parallel/forms/data/zero/bucket_ranks.h"
#include "worker/reducer/bucketing.h"
#include "worker/reducer/transfer.h"

namespace ddprun {

// Gradients of which each rank keeps only its part (shards.h): ZeRO stages 2 and 3. The memory of a bucket exists from
// the start of its first gradient until its reduce-scatter has ended; at most two buckets are under way at a time.
// Every pass reduces: passes add up in the parts, so that accumulation takes no more memory.
//
// A pass: begin_pass(), ready() once for each parameter of its buckets, then finish(). Buckets start in their order,
// whatever the order in which gradients become ready, so that all ranks start the same operations.
//
// Ownership: the groups outlive this object. Threads: one at a time.
// Errors: those of its groups; Errc::usage for a parameter that is ready twice, or not by finish(). The object cannot
//   be used afterwards.
class ShardedGradients {
 public:
  struct Options {
    std::optional<DType> sent_as = {};  // a type of 16 bits to which gradients are rounded for the reductions of a pass
    // The ranks that tell each other in every pass which parameters it has reached; null: it has to reach all.
    ProcessGroup* may_leave_out = nullptr;
  };

  // ranks: by bucket.
  ShardedGradients(std::vector<BucketRanks> ranks, std::vector<std::pair<std::string, Variable>> parameters,
                   std::vector<Bucket> buckets, const Options& options);
  ~ShardedGradients();  // waits for operations in progress
  ShardedGradients(const ShardedGradients&) = delete;
  ShardedGradients& operator=(const ShardedGradients&) = delete;

  // Begins a pass that reaches the parameters of these buckets, ascending; it outlives the pass.
  void begin_pass(const std::vector<std::size_t>& buckets) { expected_ = &buckets; }
  // Makes the next pass replace the parts; those after it add to them.
  void begin_sum();
  // Called when the gradient of a parameter is complete, or if this rank has none, which counts as zero. used: false if
  // no pass of this rank has reached it.
  void ready(std::size_t parameter, bool used = true);
  // Returns whether a pass since begin_sum() has reached the parameter at some rank.
  bool used(std::size_t parameter) const { return used_.at(parameter) != 0; }
  // Returns whether a gradient has become ready since the last finish().
  bool has_begun() const;
  void finish();

  // Returns by bucket this rank's elements of the average.
  const std::vector<Tensor>& parts() const { return parts_; }
  std::size_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = bytes_; }

  std::chrono::nanoseconds waited() const { return waited_; }
  std::chrono::nanoseconds starting() const { return starting_; }
  void record_transfers(std::vector<Transfer>* into) { transfers_ = into; }

 private:
  struct Place {
    std::size_t bucket = 0, slice = 0;
    bool ready = false;
  };
  struct Travelling {
    std::size_t bucket = 0;
    Tensor part;  // the result, if it is no part itself
    Tensor sent;  // the gradients in 16 bits, if they are rounded
    WorkPtr work;
    std::chrono::steady_clock::time_point start;
  };

  Tensor slice_of(std::size_t bucket, std::size_t slice) const;
  Tensor memory_of(std::size_t parameter);
  void start(std::size_t bucket);
  void take_result(const Travelling& reduction);
  void complete_oldest();
  void close(std::size_t bucket);
  void complete_expected();
  void share_use();
  void grow(std::size_t bytes);
  std::string unready_names() const;

  const std::vector<BucketRanks> ranks_;  // by bucket
  std::vector<std::pair<std::string, Variable>> parameters_;
  const std::vector<Bucket> buckets_;
  const Options options_;
  std::vector<Place> places_;                           // by parameter
  std::vector<std::uint8_t> used_;                      // by parameter: 1 if a pass of this sum has reached it
  std::vector<Tensor> memory_;                          // by bucket; undefined while there is none
  std::vector<Tensor> parts_;                           // by bucket
  std::vector<bool> adds_;                              // by bucket, true if its part holds the sum of earlier passes
  std::vector<std::size_t> missing_;                    // by bucket, the number of parameters that are not ready yet
  const std::vector<std::size_t>* expected_ = nullptr;  // the buckets of the pass
  std::size_t next_ = 0;                                // the next of these to start
  std::deque<Travelling> travelling_;
  std::size_t bytes_ = 0, peak_ = 0;
  std::chrono::nanoseconds waited_{}, starting_{};
  std::vector<Transfer>* transfers_ = nullptr;
};

}  // namespace ddprun
