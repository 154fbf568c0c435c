#pragma once

#include <cstdint>

#include "worker/data/augmentation.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"

namespace ddprun::data {

// Mixup (Zhang et al., 2018): each training sample becomes share * itself + (1 - share) * another sample, and so does
// what is to be learnt from it. The other sample is any of the data set, each as likely, and the share is drawn from
// Beta(alpha, alpha): both are a function only of (seed, epoch, index of the sample), so a sample is mixed alike at
// any batch size, number of ranks and number of loader threads. Thread-safe.
class Mixup {
 public:
  // A tensor of the batch: (samples, classes) float32, the share of each class in a sample; the sum of a row is 1.
  static constexpr const char* class_shares = "class_shares";

  // alpha: above 0; the larger, the closer shares are to a half. layout: that of float32 samples with class labels.
  // Throws Errc::usage for others.
  Mixup(double alpha, const SampleLayout& layout);

  struct Partner {
    std::int64_t sample = 0;
    float share = 1;  // that of the sample itself
  };
  // size: that of the data set.
  Partner partner_of(std::int64_t sample, std::int64_t size, std::int64_t epoch, std::uint64_t seed) const;

  // Mixes the inputs of a batch in place, with partners as augmentation (if not null) changes them in this epoch, and
  // adds class_shares. The targets stay the samples' own. dataset: that of the batch.
  void apply(Batch& batch, const Dataset& dataset, const Augmentation* augmentation, std::uint64_t seed) const;

 private:
  double alpha_;
  std::int64_t classes_;
};

}  // namespace ddprun::data
