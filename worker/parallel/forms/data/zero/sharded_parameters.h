#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/cast_place.h"
#include "worker/autograd/variable.h"
#include "worker/parallel/forms/data/zero/bucket_ranks.h"
#include "worker/parallel/releasable_memory.h"
#include "worker/reducer/bucketing.h"

namespace ddprun {

// Parameters of which each rank keeps its part (shards.h) of each bucket, and the whole of a bucket only during its
// use: ZeRO stage 3. While a bucket is absent, its pages are given back and operations refuse its parameters; addresses
// stay the same, so a tape may refer to a parameter that is freed after the forward pass and gathered before the
// backward pass. The 16-bit copies that autocast makes of parameters come and go with them.
//
// Ownership: the groups outlive this object; the values of the parameters outlive it.
// Threads: one at a time. acquire() and prefetch() are collective of the shard group, in the same order at its ranks.
// Errors: those of the groups.
class ShardedParameters {
 public:
  // Takes over the values of the parameters, which are the same at all ranks of a bucket, and frees them. ranks: by
  // bucket.
  ShardedParameters(std::vector<BucketRanks> ranks, std::vector<std::pair<std::string, Variable>> parameters,
                    std::vector<Bucket> buckets);
  ~ShardedParameters();  // waits for operations in progress
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  // Makes the bucket whole until each user has released it; if the last one says keep, until another's release() or
  // drop_all().
  void acquire(std::size_t bucket);
  void release(std::size_t bucket, bool keep);
  // Starts to gather a bucket that is absent.
  void prefetch(std::size_t bucket);
  // Drops all buckets; none is in use any more.
  void drop_all();
  // Keeps the buckets that are whole, or coming, although none is in use any more.
  void keep_all();

  // To be called after the parts have changed.
  void parts_updated();

  // Returns this rank's elements by bucket.
  const std::vector<Tensor>& parts() const { return parts_; }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_.at(parameter); }
  bool is_present(std::size_t bucket) const { return states_.at(bucket).state == State::present; }
  // The size of the bucket's pages that this process has.
  std::size_t resident_bytes(std::size_t bucket) const { return memory_.at(bucket)->resident_bytes(); }

  // The most bytes of parts, whole buckets and their 16-bit copies at a time.
  std::size_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = bytes_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  enum class State { absent, coming, present };
  struct BucketState {
    State state = State::absent;
    int users = 0;
    WorkPtr work;  // set while the bucket is coming
  };

  Span whole(std::size_t bucket) const;
  Span part(std::size_t bucket) const;
  Counts counts(std::size_t bucket) const;
  void become(std::size_t bucket, State state);
  void drop(std::size_t bucket);
  void make_cast_places(std::size_t bucket);
  void take_casts_away(std::size_t bucket);
  void bring_casts_back(std::size_t bucket);
  void count_casts(std::size_t bucket);

  const std::vector<BucketRanks> ranks_;  // by bucket
  std::vector<std::pair<std::string, Variable>> parameters_;
  const std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;                             // by parameter
  std::vector<std::shared_ptr<ReleasableMemory>> memory_;          // by bucket
  std::vector<std::shared_ptr<ReleasableMemory>> casts_;           // by bucket; null where parameters are not float32
  std::vector<std::shared_ptr<autograd::CastPlace>> cast_places_;  // by parameter
  std::vector<std::size_t> cast_bytes_;                            // by bucket, of the copies that are counted
  std::vector<Tensor> parts_;                                      // by bucket
  std::vector<BucketState> states_;                                // by bucket
  std::size_t bytes_ = 0, peak_ = 0;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun
