#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/data/augmentation.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/data/mixup.h"

namespace ddprun::data {

// Batches of indices, of any sizes: batch i is [ends[i-1], ends[i]) of the indices.
struct BatchList {
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> ends;
};

struct LoaderOptions {
  std::int64_t batch_size = 64;                // used if no BatchList is given
  int workers = 1;                             // threads that prepare batches ahead
  int prefetch = 4;                            // the most batches that are ready or in the making
  std::int64_t epoch = 0;                      // that of the batches
  const Augmentation* augmentation = nullptr;  // applied to the inputs, unless null; must outlive the loader
  const Mixup* mixup = nullptr;                // applied after it; also outlives the loader
  std::uint64_t seed = 0;                      // that of both
};

// Batches over a list of indices, in order: of batch_size, the last one shorter if it has to be, or as a BatchList
// says. What comes out depends only on the indices, the epoch and the seed, not on the number of threads. To start in
// the middle of an epoch, pass the indices that are left.
//
// Ownership: the dataset outlives the loader, which owns its threads; the destructor stops them and waits for them,
//   also before the last batch.
// Threads: one at a time. next() blocks until the batch is read, and reads it itself if no worker has begun to.
// Errors: next() rethrows an exception of the dataset at the batch concerned and at every later call.
class Loader {
 public:
  Loader(const Dataset& dataset, std::vector<std::int64_t> indices, LoaderOptions options);
  Loader(const Dataset& dataset, BatchList batches, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batches() const;  // the number in all
  // Returns none at the end.
  std::optional<Batch> next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::data
