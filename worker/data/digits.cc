#include "worker/data/digits.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "worker/data/glyphs.h"
#include "worker/data/sample_random.h"

namespace ddprun::data {
namespace {

// The limits of changes to a digit. Tuned against a linear model and the CNN; see tests/numerics.
constexpr float max_rotation = 0.35F;  // radians
constexpr float max_shear = 0.3F;
constexpr float min_height = 15.0F;  // pixels
constexpr float max_height = 22.0F;
constexpr float min_aspect = 0.6F;  // width / height
constexpr float max_aspect = 0.95F;
constexpr float max_shift = 2.5F;  // pixels
constexpr float bend = 0.045F;     // fraction of the box, standard deviation of a point's displacement
constexpr float min_pen = 1.6F;    // pixels
constexpr float max_pen = 3.4F;
constexpr float digit_noise = 0.15F;  // fraction of full white, standard deviation

// The affine map from the glyph's box to pixels.
struct Placement {
  float xx, xy, yx, yy, x0, y0;

  Point operator()(Point p) const {
    const float u = p.x - 0.5F;
    const float v = p.y - 0.5F;
    return {x0 + xx * u + xy * v, y0 + yx * u + yy * v};
  }
};

Placement random_placement(SampleRandom& random) {
  const float angle = random.uniform(-max_rotation, max_rotation);
  const float shear = random.uniform(-max_shear, max_shear);
  const float height = random.uniform(min_height, max_height);
  const float width = height * random.uniform(min_aspect, max_aspect);
  const float cosine = std::cos(angle);
  const float sine = std::sin(angle);
  Placement place{};
  place.xx = cosine * width;
  place.xy = (cosine * shear - sine) * height;
  place.yx = sine * width;
  place.yy = (sine * shear + cosine) * height;
  const float centre = (digit_extent - 1) / 2.0F;
  place.x0 = centre + random.uniform(-max_shift, max_shift);
  place.y0 = centre + random.uniform(-max_shift, max_shift);
  return place;
}

// A smooth displacement of the plane: low waves, so that neighbouring points move together.
Point bent(Point p, const std::array<float, 8>& w) {
  constexpr float wave = 3.0F;
  return {p.x + w[0] * std::sin(wave * p.y + 6.0F * w[2]) + w[1] * std::sin(wave * p.x + 6.0F * w[3]),
          p.y + w[4] * std::sin(wave * p.x + 6.0F * w[6]) + w[5] * std::sin(wave * p.y + 6.0F * w[7])};
}

float distance_to_segment(Point p, Point a, Point b) {
  const float dx = b.x - a.x;
  const float dy = b.y - a.y;
  const float length2 = dx * dx + dy * dy;
  const float t = length2 > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0F, 1.0F) : 0.0F;
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

using Canvas = std::array<float, digit_pixels>;

// Ink is 1 within the pen's radius and falls to 0 over one pixel.
void draw_segment(Canvas& canvas, Point a, Point b, float radius) {
  const float reach = radius + 1.0F;
  const auto low = [&](float u, float v) { return std::max(0, static_cast<int>(std::floor(std::min(u, v) - reach))); };
  const auto high = [&](float u, float v) {
    return std::min(digit_extent - 1, static_cast<int>(std::ceil(std::max(u, v) + reach)));
  };
  for (int y = low(a.y, b.y); y <= high(a.y, b.y); ++y) {
    for (int x = low(a.x, b.x); x <= high(a.x, b.x); ++x) {
      const float distance = distance_to_segment({static_cast<float>(x), static_cast<float>(y)}, a, b);
      float& ink = canvas[static_cast<std::size_t>(y) * digit_extent + static_cast<std::size_t>(x)];
      ink = std::max(ink, std::clamp(radius + 0.5F - distance, 0.0F, 1.0F));
    }
  }
}

void draw_glyph(Canvas& canvas, const Glyph& glyph, SampleRandom& random) {
  std::array<float, 8> waves{};
  for (auto& w : waves) w = bend * random.normal();
  const auto place = random_placement(random);
  const float radius = random.uniform(min_pen, max_pen) / 2;
  for (const auto& stroke : glyph) {
    for (std::size_t i = 1; i < stroke.size(); ++i)
      draw_segment(canvas, place(bent(stroke[i - 1], waves)), place(bent(stroke[i], waves)), radius);
  }
}

}  // namespace

Digit draw_digit(std::uint64_t seed, Split split, std::int64_t index) {
  SampleRandom random{seed, static_cast<std::uint64_t>(split), static_cast<std::uint64_t>(index)};
  Digit digit;
  digit.label = random.below(10);
  const auto glyphs = glyphs_of(digit.label);
  Canvas canvas{};
  draw_glyph(canvas, glyphs[static_cast<std::size_t>(random.below(static_cast<int>(glyphs.size())))], random);
  const float brightness = random.uniform(0.65F, 1.0F);
  const float noise = random.uniform(0.0F, digit_noise);
  for (std::size_t i = 0; i < canvas.size(); ++i) {
    const float level = std::clamp(brightness * canvas[i] + noise * random.normal(), 0.0F, 1.0F);
    digit.levels[i] = static_cast<std::uint8_t>(std::lround(level * 255.0F));
  }
  return digit;
}

DigitsDataset::DigitsDataset(const DigitsOptions& options)
    : options_(options),
      layout_(image_layout(digit_extent, digit_extent, 10, std::span(&options.normalization, 1))),
      kept_(options.size) {}

void DigitsDataset::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  const auto digit = kept_.get(index, [&] { return draw_digit(options_.seed, options_.split, index); });
  normalize(digit.levels, std::span(&options_.normalization, 1),
            {reinterpret_cast<float*>(input.data()), input.size() / sizeof(float)});
  const std::int64_t label = digit.label;
  std::memcpy(target.data(), &label, sizeof(label));
}

}  // namespace ddprun::data
