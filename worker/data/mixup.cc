#include "worker/data/mixup.h"

#include <cmath>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/data/sample_random.h"

namespace ddprun::data {
namespace {

constexpr std::uint64_t mixup_stream = 0x6d6978;  // different from the streams of augmentation and of generated samples

double above_zero(SampleRandom& random) {
  return 1 - static_cast<double>(random.uniform());
}

// Returns the logarithm of a number from Gamma(shape, 1): small shapes have numbers that underflow. Marsaglia and
// Tsang, "A simple method for generating gamma variables" (2000), for shape + 1, then times u^(1 / shape).
double log_gamma_variate(double shape, SampleRandom& random) {
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = static_cast<double>(random.normal());
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0 || std::log(above_zero(random)) >= x * x / 2 + d - d * v + d * std::log(v)) continue;
    return std::log(d * v) + std::log(above_zero(random)) / shape;
  }
}

// Returns a number from Beta(alpha, alpha): x / (x + y) of two numbers from Gamma(alpha, 1).
double beta_variate(double alpha, SampleRandom& random) {
  const double x = log_gamma_variate(alpha, random), y = log_gamma_variate(alpha, random);
  return 1 / (1 + std::exp(y - x));
}

}  // namespace

Mixup::Mixup(double alpha, const SampleLayout& layout) : alpha_(alpha), classes_(layout.classes) {
  if (!(alpha > 0)) throw make_error(Errc::usage, "mixup: alpha is {}, but has to be above 0", alpha);
  if (layout.classes == 0 || layout.input_dtype != DType::float32)
    throw Error(Errc::usage, "only samples of numbers with class labels can be mixed");
}

Mixup::Partner Mixup::partner_of(std::int64_t sample, std::int64_t size, std::int64_t epoch, std::uint64_t seed) const {
  SampleRandom random{mixup_stream, seed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(sample)};
  const auto partner = static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(size));
  return {.sample = partner, .share = static_cast<float>(beta_variate(alpha_, random))};
}

void Mixup::apply(Batch& batch, const Dataset& dataset, const Augmentation* augmentation, std::uint64_t seed) const {
  std::vector<Partner> partners;
  std::vector<std::int64_t> samples;
  for (const std::int64_t sample : batch.samples) {
    partners.push_back(partner_of(sample, dataset.size(), batch.epoch, seed));
    samples.push_back(partners.back().sample);
  }
  Batch others = make_batch(dataset, std::move(samples), batch.epoch);
  if (augmentation) augmentation->apply(others, seed);

  Tensor inputs = batch.input();
  Tensor shares = Tensor::zeros({batch.size(), classes_});
  const std::int64_t values = inputs.numel() / batch.size();
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const float share = partners[static_cast<std::size_t>(i)].share;
    float* own = inputs.data<float>() + i * values;
    const float* other = others.input().data<float>() + i * values;
    for (std::int64_t k = 0; k < values; ++k) own[k] = share * own[k] + (1 - share) * other[k];
    float* row = shares.data<float>() + i * classes_;
    row[batch.target().data<std::int64_t>()[i]] += share;
    row[others.target().data<std::int64_t>()[i]] += 1 - share;
  }
  batch.add(class_shares, std::move(shares));
}

}  // namespace ddprun::data
