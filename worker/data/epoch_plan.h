#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "worker/data/loader.h"

namespace ddprun::data {

// The division of the samples of an epoch into optimizer steps, and of the samples of a step into parts: one for each
// rank, or for each shard (train.shards). A position is an index into the epoch's order (epoch_order()), and `done` is
// the number of samples that all ranks together have trained: an epoch goes on at the same sample with any number of
// ranks. Pure arithmetic.
struct EpochPlan {
  std::int64_t size = 0;          // samples in the data set
  std::int64_t step_samples = 1;  // samples of an optimizer step, of all ranks together
  int parts = 1;
  std::int64_t divisor = 1;  // the last samples, which do not divide by this, are left out
  // Samples of a full step, by part, adding up to step_samples; if empty, the step is divided as evenly as possible.
  std::vector<std::int64_t> shares = {};

  // Returns the number of samples that are still to be trained.
  std::int64_t left(std::int64_t done) const {
    const auto rest = std::max<std::int64_t>(size - done, 0);
    return rest - rest % divisor;
  }
  std::int64_t steps_left(std::int64_t done) const {
    return left(done) / step_samples + (left(done) % step_samples > 0 ? 1 : 0);
  }
  // Returns the samples of the step that begins at this position; the last one of an epoch may be smaller.
  std::int64_t samples_at(std::int64_t done) const { return std::min(step_samples, left(done)); }
  // Returns the samples of one part of a step of so many samples: 0 for the last parts if there are fewer than parts.
  std::int64_t share(std::int64_t samples, int part) const {
    if (!shares.empty()) return before(samples, part + 1) - before(samples, part);
    return samples > part ? (samples - part - 1) / parts + 1 : 0;
  }
  // Returns the position of the part's i-th sample in such a step, from the step's begin on. An even division deals the
  // samples out in turn; by shares each part is a range.
  std::int64_t position(std::int64_t samples, int part, std::int64_t i) const {
    return shares.empty() ? part + i * parts : before(samples, part) + i;
  }

 private:
  // Returns the samples of the parts before this one; a short step is divided in proportion to the shares.
  std::int64_t before(std::int64_t samples, int part) const {
    return samples * std::accumulate(shares.begin(), shares.begin() + part, std::int64_t{0}) / step_samples;
  }
};

// Returns the batches of a rank that has these parts, in order, of the steps that are still to be done. Each part is
// cut into batches of at most batch_size samples; one without samples in a step has no batch for it. order:
// epoch_order(). in_first_step: the rank's parts in the first of these steps, if they are others.
BatchList batches_of_parts(const EpochPlan& plan, const std::vector<std::int64_t>& order, std::int64_t done,
                           const std::vector<int>& parts, std::int64_t batch_size,
                           const std::optional<std::vector<int>>& in_first_step = {});

}  // namespace ddprun::data
