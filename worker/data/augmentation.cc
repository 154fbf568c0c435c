#include "worker/data/augmentation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/data/sample_random.h"

namespace ddprun::data {
namespace {

constexpr std::uint64_t augmentation_stream = 0x61756d;  // different from the streams of generated samples

struct Plane {
  std::int64_t height;
  std::int64_t width;
};

// Moves the plane by (down, right) pixels; what comes in from outside has the level of black.
void shift(std::span<float> plane, Plane size, std::int64_t down, std::int64_t right, float black) {
  const std::vector<float> before(plane.begin(), plane.end());
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      const std::int64_t from_y = y - down, from_x = x - right;
      const bool inside = from_y >= 0 && from_y < size.height && from_x >= 0 && from_x < size.width;
      plane[static_cast<std::size_t>(y * size.width + x)] =
          inside ? before[static_cast<std::size_t>(from_y * size.width + from_x)] : black;
    }
  }
}

void mirror(std::span<float> plane, Plane size) {
  for (std::int64_t y = 0; y < size.height; ++y)
    std::ranges::reverse(plane.subspan(static_cast<std::size_t>(y * size.width), static_cast<std::size_t>(size.width)));
}

// Returns the first and the one after the last of `size` pixels around the middle, as far as they exist.
std::pair<std::int64_t, std::int64_t> around(std::int64_t middle, std::int64_t size, std::int64_t all) {
  const std::int64_t begin = middle - size / 2;
  return {std::max<std::int64_t>(begin, 0), std::min(begin + size, all)};
}

void cut_out(std::span<float> plane, Plane size, std::int64_t y, std::int64_t x, std::int64_t side) {
  const auto [top, bottom] = around(y, side, size.height);
  const auto [left, right] = around(x, side, size.width);
  for (std::int64_t row = top; row < bottom; ++row)
    std::ranges::fill(
        plane.subspan(static_cast<std::size_t>(row * size.width + left), static_cast<std::size_t>(right - left)), 0.0F);
}

}  // namespace

Augmentation::Augmentation(const AugmentationOptions& options, const SampleLayout& layout)
    : options_(options), layout_(layout) {
  if (layout.input_shape.size() != 3 || layout.input_dtype != DType::float32)
    throw make_error(Errc::usage, "images can be cropped, flipped and cut, samples of shape {} cannot",
                     fmt::join(layout.input_shape, "x"));
  if (layout_.black.empty()) layout_.black.resize(static_cast<std::size_t>(layout.input_shape[0]));
}

void Augmentation::apply(Batch& batch, std::uint64_t seed) const {
  Tensor images = batch.input();
  const std::span<float> all(images.data<float>(), static_cast<std::size_t>(images.numel()));
  const std::size_t values = layout_.input_bytes() / sizeof(float);
  for (std::size_t i = 0; i < batch.samples.size(); ++i)
    apply(all.subspan(i * values, values), seed, batch.epoch, batch.samples[i]);
}

void Augmentation::apply(std::span<float> image, std::uint64_t seed, std::int64_t epoch, std::int64_t sample) const {
  SampleRandom random{augmentation_stream, seed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(sample)};
  const auto padding = options_.crop_padding;
  // All are drawn, whether or not they are used: one change does not alter another.
  const auto offset = [&] { return random.below(static_cast<int>(2 * padding + 1)) - padding; };
  const std::int64_t down = offset(), right = offset();
  const bool flipped = options_.flip && random.below(2) == 1;
  const Plane size{layout_.input_shape[1], layout_.input_shape[2]};
  const std::int64_t cut_y = random.below(static_cast<int>(size.height));
  const std::int64_t cut_x = random.below(static_cast<int>(size.width));
  const auto values = static_cast<std::size_t>(size.height * size.width);
  for (std::size_t channel = 0; channel < layout_.black.size(); ++channel) {
    const auto plane = image.subspan(channel * values, values);
    if (down != 0 || right != 0) shift(plane, size, down, right, layout_.black[channel]);
    if (flipped) mirror(plane, size);
    if (options_.cutout > 0) cut_out(plane, size, cut_y, cut_x, options_.cutout);
  }
}

}  // namespace ddprun::data
