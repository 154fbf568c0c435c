#include "worker/data/glyphs.h"

#include <array>
#include <cmath>
#include <numbers>

namespace ddprun::data {
namespace {

// Returns a part of an ellipse, angles in degrees: 0 is right, 90 down; drawn from `from` to `to`, either way round.
Stroke arc(Point centre, Point radii, float from, float to) {
  constexpr int pieces = 10;
  Stroke stroke;
  for (int i = 0; i <= pieces; ++i) {
    const float angle = (from + (to - from) * static_cast<float>(i) / pieces) * std::numbers::pi_v<float> / 180.0F;
    stroke.push_back({centre.x + radii.x * std::cos(angle), centre.y + radii.y * std::sin(angle)});
  }
  return stroke;
}

Stroke joined(Stroke first, const Stroke& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::array<std::vector<Glyph>, 10> make_glyphs() {
  std::array<std::vector<Glyph>, 10> all;
  all[0] = {{arc({0.5F, 0.5F}, {0.36F, 0.5F}, -90, 270)}, {arc({0.5F, 0.5F}, {0.26F, 0.48F}, -60, 310)}};
  all[1] = {{{{0.5F, 0}, {0.5F, 1}}},
            {{{0.28F, 0.25F}, {0.55F, 0}, {0.55F, 1}}},
            {{{0.3F, 0.22F}, {0.52F, 0}, {0.52F, 1}}, {{0.25F, 1}, {0.8F, 1}}}};
  all[2] = {{joined(arc({0.5F, 0.28F}, {0.33F, 0.28F}, -170, 40), {{0.15F, 1}, {0.87F, 1}})},
            {joined(joined(arc({0.5F, 0.26F}, {0.32F, 0.26F}, -160, 60), arc({0.3F, 0.86F}, {0.16F, 0.12F}, 120, 340)),
                    {{0.65F, 0.98F}, {0.9F, 0.9F}})}};
  all[3] = {{joined(arc({0.47F, 0.26F}, {0.33F, 0.26F}, -150, 90), arc({0.47F, 0.75F}, {0.37F, 0.25F}, -90, 150))},
            {joined({{0.15F, 0}, {0.8F, 0}, {0.45F, 0.4F}}, arc({0.46F, 0.7F}, {0.36F, 0.3F}, -80, 150))}};
  all[4] = {{{{0.65F, 1}, {0.65F, 0}, {0.1F, 0.68F}, {0.92F, 0.68F}}},
            {{{0.2F, 0}, {0.16F, 0.52F}, {0.85F, 0.52F}}, {{0.78F, 0.05F}, {0.74F, 1}}}};
  all[5] = {{joined({{0.82F, 0}, {0.25F, 0}, {0.2F, 0.45F}}, arc({0.48F, 0.69F}, {0.36F, 0.31F}, -125, 140))},
            {joined({{0.24F, 0.02F}, {0.2F, 0.42F}}, arc({0.46F, 0.7F}, {0.34F, 0.3F}, -110, 150)),
             {{0.22F, 0.02F}, {0.85F, 0}}}};
  all[6] = {{joined(arc({0.72F, 0.62F}, {0.55F, 0.62F}, -95, -180), arc({0.5F, 0.7F}, {0.34F, 0.3F}, -180, 180))},
            {joined({{0.6F, 0}, {0.25F, 0.5F}}, arc({0.5F, 0.7F}, {0.33F, 0.29F}, -160, 200))}};
  all[7] = {{{{0.12F, 0}, {0.86F, 0}, {0.4F, 1}}},
            {{{0.12F, 0.02F}, {0.86F, 0}, {0.42F, 1}}, {{0.32F, 0.5F}, {0.8F, 0.5F}}},
            {joined({{0.14F, 0.14F}, {0.16F, 0}}, {{0.84F, 0.04F}, {0.55F, 0.5F}, {0.48F, 1}})}};
  all[8] = {{arc({0.5F, 0.25F}, {0.28F, 0.25F}, 90, 450), arc({0.5F, 0.75F}, {0.34F, 0.25F}, -90, 270)},
            {{{0.8F, 0.12F},
              {0.45F, 0},
              {0.22F, 0.2F},
              {0.72F, 0.7F},
              {0.6F, 0.97F},
              {0.3F, 0.95F},
              {0.26F, 0.7F},
              {0.75F, 0.28F},
              {0.8F, 0.12F}}}};
  all[9] = {{joined(arc({0.48F, 0.3F}, {0.33F, 0.3F}, 0, 360), arc({0.28F, 0.38F}, {0.53F, 0.62F}, 0, 85))},
            {joined(arc({0.46F, 0.29F}, {0.31F, 0.28F}, -20, 340), {{0.74F, 0.25F}, {0.7F, 1}})}};
  return all;
}

}  // namespace

std::span<const Glyph> glyphs_of(int digit) {
  static const auto all = make_glyphs();
  return all[static_cast<std::size_t>(digit)];
}

}  // namespace ddprun::data
