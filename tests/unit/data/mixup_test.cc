#include "worker/data/mixup.h"

#include <cmath>
#include <set>

#include "common/error.h"
#include "worker/data/patterns.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::data;

namespace {

const SampleLayout labels{.input_shape = {2}, .classes = 3};

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of_shares(double alpha) {
  const Mixup mixup(alpha, labels);
  constexpr int count = 20000;
  double sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    const double share = static_cast<double>(mixup.partner_of(i, 10, 2, 5).share);
    if (!(share >= 0 && share <= 1)) throw std::runtime_error("a share beyond its bounds");
    sum += share;
    squares += share * share;
  }
  return {.mean = sum / count, .variance = squares / count - sum / count * sum / count};
}

}  // namespace

TEST_CASE("shares have the moments of the beta distribution") {
  for (const double alpha : {0.001, 0.2, 1.0, 4.0, 500.0}) {
    INFO(alpha);
    const auto found = moments_of_shares(alpha);
    CHECK(found.mean == Approx(0.5).margin(0.015));
    CHECK(found.variance == Approx(1 / (4 * (2 * alpha + 1))).epsilon(0.05));
  }
}

TEST_CASE("every sample is a partner, and seed, epoch and sample each decide which") {
  const Mixup mixup(1, labels);
  std::set<std::int64_t> partners;
  int epoch_differs = 0, seed_differs = 0;
  for (std::int64_t sample = 0; sample < 400; ++sample) {
    const auto partner = mixup.partner_of(sample, 40, 1, 7);
    partners.insert(partner.sample);
    CHECK(mixup.partner_of(sample, 40, 1, 7).share == partner.share);
    epoch_differs += mixup.partner_of(sample, 40, 2, 7).share != partner.share;
    seed_differs += mixup.partner_of(sample, 40, 1, 8).sample != partner.sample;
  }
  CHECK(partners.size() == 40);
  CHECK(epoch_differs > 390);
  CHECK(seed_differs > 350);
}

TEST_CASE("a mixed sample is the sum of two augmented ones by their shares, and so are its classes") {
  const PatternsDataset set({.size = 30});
  const Augmentation augmentation({.crop_padding = 3, .flip = true}, set.layout());
  const Mixup mixup(0.7, set.layout());
  Batch mixed = make_batch(set, {4, 9, 4, 28}, 6);
  augmentation.apply(mixed, 11);
  mixup.apply(mixed, set, &augmentation, 11);
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t sample = mixed.samples[static_cast<std::size_t>(i)];
    const auto [partner, share] = mixup.partner_of(sample, 30, 6, 11);
    Batch both = make_batch(set, {sample, partner}, 6);
    augmentation.apply(both, 11);
    const std::int64_t values = both.input().numel() / 2;
    const float* pixels = both.input().data<float>();
    for (std::int64_t k = 0; k < values; ++k)
      REQUIRE(mixed.input().data<float>()[i * values + k] ==
              Approx(static_cast<double>(share * pixels[k] + (1 - share) * pixels[values + k])).margin(1e-6));
    const auto* classes = both.target().data<std::int64_t>();
    CHECK(mixed.target().data<std::int64_t>()[i] == classes[0]);
    for (std::int64_t c = 0; c < set.layout().classes; ++c) {
      const float expected = (c == classes[0] ? share : 0) + (c == classes[1] ? 1 - share : 0);
      CHECK(mixed.at(Mixup::class_shares).data<float>()[i * set.layout().classes + c] == expected);
    }
  }
}

TEST_CASE("only numbers with class labels can be mixed") {
  CHECK_THROWS_WITH(Mixup(1, {.input_shape = {2}}), "only samples of numbers with class labels can be mixed");
  CHECK_THROWS_AS(Mixup(1, {.input_shape = {2}, .input_dtype = DType::int64, .classes = 2}), Error);
  CHECK_THROWS_WITH(Mixup(0, labels), "mixup: alpha is 0, but has to be above 0");
}
