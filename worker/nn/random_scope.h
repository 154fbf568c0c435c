#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/autograd/checkpoint.h"

namespace ddprun::nn {

// The samples of a forward pass. What a layer draws for a sample (dropout) is a function only of (seed, epoch, sample)
// and the layer's path: the same at any batch size, at any number of ranks, and when a pass is computed again.
struct SampleKeys {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;  // for each row of the batch its index in the data set
};

// Sets the keys for forward passes on this thread during its lifetime. Without one, a layer that draws random numbers
// takes them from the generator that it was built with. The layers that autograd::checkpoint() computes again have the
// same keys.
class RandomScope final : public autograd::ContextScope {
 public:
  explicit RandomScope(SampleKeys keys);
  ~RandomScope();

  // Returns the keys of this thread; null outside of any scope.
  static const SampleKeys* current();

 private:
  explicit RandomScope(std::shared_ptr<const SampleKeys> keys);
  Maker maker() const override;

  std::shared_ptr<const SampleKeys> keys_;
  const SampleKeys* before_;
};

// Returns the random stream of each row of a tensor whose first dimension is the batch, or the batch times positions of
// each sample. Throws Errc::mismatch if rows is not a multiple of the number of samples.
std::vector<std::uint64_t> streams_of_rows(const SampleKeys& keys, const std::string& layer, std::int64_t rows);

}  // namespace ddprun::nn
