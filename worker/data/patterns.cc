#include "worker/data/patterns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "worker/data/sample_random.h"

namespace ddprun::data {
namespace {

enum class Kind { horizontal, vertical, diagonal, crossed, rings };

constexpr float min_radius = 9.0F;  // that of the disc, in pixels
constexpr float max_radius = 15.0F;
constexpr float max_tilt = 0.2F;                     // radians
constexpr std::array<float, 2> long_wave{9, 12};     // pixels
constexpr std::array<float, 2> short_wave{4.5F, 6};  // pixels
constexpr float min_contrast = 0.2F;                 // fraction of full white, the waves' amplitude over all channels
constexpr float max_contrast = 0.4F;
constexpr float min_noise = 0.03F;  // fraction of full white, standard deviation
constexpr float pattern_noise = 0.12F;

using Colour = std::array<float, 3>;

struct Waves {
  Kind kind = Kind::horizontal;
  float per_pixel = 0;  // radians
  float sine = 0, cosine = 1;
  float phase_u = 0, phase_v = 0;

  // Returns the wave's value at a distance from the centre, -1 .. 1.
  float operator()(float x, float y) const {
    const float u = per_pixel * (cosine * x + sine * y) + phase_u;
    const float v = per_pixel * (cosine * y - sine * x) + phase_v;
    switch (kind) {
      case Kind::crossed:
        return std::sin(u) * std::sin(v);
      case Kind::rings:
        return std::sin(per_pixel * std::hypot(x, y) + phase_u);
      default:
        return std::sin(u);
    }
  }
};

float angle_of(Kind kind, SampleRandom& random) {
  constexpr float pi = std::numbers::pi_v<float>;
  switch (kind) {
    case Kind::horizontal:
      return pi / 2;
    case Kind::diagonal:
      return random.below(2) == 0 ? pi / 4 : -pi / 4;
    default:
      return 0;
  }
}

Waves random_waves(int label, SampleRandom& random) {
  constexpr float full_turn = 2 * std::numbers::pi_v<float>;
  Waves waves;
  waves.kind = static_cast<Kind>(label / 2);
  const auto [shortest, longest] = label % 2 == 1 ? short_wave : long_wave;
  waves.per_pixel = full_turn / random.uniform(shortest, longest);
  const float angle = angle_of(waves.kind, random) + random.uniform(-max_tilt, max_tilt);
  waves.sine = std::sin(angle);
  waves.cosine = std::cos(angle);
  waves.phase_u = random.uniform(0, full_turn);
  waves.phase_v = random.uniform(0, full_turn);
  return waves;
}

Colour random_colour(SampleRandom& random) {
  return {random.uniform(0.25F, 0.75F), random.uniform(0.25F, 0.75F), random.uniform(0.25F, 0.75F)};
}

// Returns how far the waves move each channel: any direction, and equally often its opposite.
Colour random_contrast(SampleRandom& random) {
  Colour direction{random.normal(), random.normal(), random.normal()};
  const float length = std::hypot(direction[0], direction[1], direction[2]) + 1e-6F;
  const float contrast = random.uniform(min_contrast, max_contrast);
  for (float& channel : direction) channel *= contrast / length;
  return direction;
}

}  // namespace

Pattern draw_pattern(std::uint64_t seed, Split split, std::int64_t index) {
  SampleRandom random{seed, static_cast<std::uint64_t>(split), static_cast<std::uint64_t>(index)};
  Pattern pattern;
  pattern.label = random.below(cifar_classes);
  const Waves waves = random_waves(pattern.label, random);
  const Colour ground = random_colour(random), disc = random_colour(random), contrast = random_contrast(random);
  const float radius = random.uniform(min_radius, max_radius);
  const float x0 = random.uniform(radius, cifar_extent - radius), y0 = random.uniform(radius, cifar_extent - radius);
  const float noise = random.uniform(min_noise, pattern_noise);
  constexpr std::size_t plane = std::size_t{cifar_extent} * cifar_extent;
  for (std::size_t at = 0; at < plane; ++at) {
    const std::size_t row = at / cifar_extent, column = at % cifar_extent;
    const float x = static_cast<float>(column) - x0, y = static_cast<float>(row) - y0;
    const bool inside = std::hypot(x, y) < radius;
    const float wave = inside ? waves(x, y) : 0;
    for (std::size_t c = 0; c < contrast.size(); ++c) {
      const float level = (inside ? disc : ground)[c] + contrast[c] * wave + noise * random.normal();
      pattern.levels[c * plane + at] = static_cast<std::uint8_t>(std::lround(std::clamp(level, 0.0F, 1.0F) * 255.0F));
    }
  }
  return pattern;
}

PatternsDataset::PatternsDataset(PatternsOptions options)
    : options_(std::move(options)),
      layout_(image_layout(cifar_extent, cifar_extent, cifar_classes, options_.channels)),
      kept_(options_.size) {}

void PatternsDataset::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  const auto pattern = kept_.get(index, [&] { return draw_pattern(options_.seed, options_.split, index); });
  normalize(pattern.levels, options_.channels, {reinterpret_cast<float*>(input.data()), input.size() / sizeof(float)});
  const std::int64_t label = pattern.label;
  std::memcpy(target.data(), &label, sizeof(label));
}

}  // namespace ddprun::data
