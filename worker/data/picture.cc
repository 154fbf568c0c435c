#include "worker/data/picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "common/error.h"
#include "worker/data/picture_formats.h"

namespace ddprun::data {
namespace {

constexpr std::int64_t channels = 3;

bool begins_with(std::span<const std::byte> bytes, std::initializer_list<int> signature) {
  return bytes.size() >= signature.size() &&
         std::equal(signature.begin(), signature.end(), bytes.begin(),
                    [](int expected, std::byte found) { return std::byte(expected) == found; });
}

// The pixels along one side whose mean is a new pixel, with their weights, which add up to 1.
struct Taps {
  std::int64_t begin;
  std::vector<float> weights;

  std::int64_t end() const { return begin + std::ssize(weights); }
};

// Returns those of new pixel i of `to`: a triangle as wide as two new pixels, but at least as two old ones.
Taps taps_of(std::int64_t i, std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0), centre = (static_cast<double>(i) + 0.5) * scale;
  const auto begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - support + 0.5));
  const auto end = std::min(from, static_cast<std::int64_t>(centre + support + 0.5));
  std::vector<double> weights;
  for (std::int64_t at = begin; at < end; ++at)
    weights.push_back(std::max(0.0, 1 - std::abs((static_cast<double>(at) + 0.5 - centre) / support)));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  Taps taps{begin, {}};
  for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  return taps;
}

// Returns those of the `extent` pixels in the middle of a side that becomes `to` long.
std::vector<Taps> taps_of_middle(std::int64_t from, std::int64_t to, std::int64_t extent) {
  // Half a pixel is rounded to even, as Python does.
  const std::int64_t offset = std::llrint(static_cast<double>(to - extent) / 2);
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < extent; ++i) all.push_back(taps_of(offset + i, from, to));
  return all;
}

std::uint8_t level(float value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
}

// Returns rows [begin, end) with new columns.
Picture resize_rows(const Picture& picture, std::int64_t begin, std::int64_t end, const std::vector<Taps>& columns) {
  Picture result{.height = end - begin, .width = std::ssize(columns), .levels = {}};
  result.levels.reserve(static_cast<std::size_t>(channels * result.height * result.width));
  for (std::int64_t row = begin; row < end; ++row) {
    const std::uint8_t* from = picture.levels.data() + channels * picture.width * row;
    for (const Taps& taps : columns)
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const std::uint8_t* at = from + channels * taps.begin + channel;
        float sum = 0;
        for (std::size_t i = 0; i < taps.weights.size(); ++i, at += channels) sum += taps.weights[i] * *at;
        result.levels.push_back(level(sum));
      }
  }
  return result;
}

// first: the row of the old picture with which this one begins
Picture resize_columns(const Picture& picture, std::int64_t first, const std::vector<Taps>& rows) {
  Picture result{.height = std::ssize(rows), .width = picture.width, .levels = {}};
  const std::int64_t row_levels = channels * picture.width;
  std::vector<float> sums(static_cast<std::size_t>(row_levels));
  for (const Taps& taps : rows) {
    std::ranges::fill(sums, 0.0F);
    const std::uint8_t* row = picture.levels.data() + row_levels * (taps.begin - first);
    for (std::size_t i = 0; i < taps.weights.size(); ++i, row += row_levels)
      for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += taps.weights[i] * row[at];
    std::ranges::transform(sums, std::back_inserter(result.levels), level);
  }
  return result;
}

}  // namespace

void check_picture_size(std::int64_t height, std::int64_t width, const std::string& name) {
  if (height < 1 || width < 1 || height > max_picture_pixels / width)
    throw make_error(Errc::io, "{}: a picture of {} x {} pixels; from 1 to {} of them can be read", name, width, height,
                     max_picture_pixels);
}

Picture decode_picture(std::span<const std::byte> bytes, const std::string& name) {
  if (begins_with(bytes, {0x89, 'P', 'N', 'G'})) return decode_png(bytes, name);
  if (begins_with(bytes, {0xFF, 0xD8, 0xFF})) return decode_jpeg(bytes, name);
  throw make_error(Errc::io, "{}: neither a PNG nor a JPEG file", name);
}

bool reads_pictures() {
  return DDPRUN_READS_PICTURES == 1;
}

Picture resize_and_crop(const Picture& picture, std::int64_t extent) {
  const std::int64_t shorter = std::min(picture.height, picture.width);
  const auto rows = taps_of_middle(picture.height, picture.height * extent / shorter, extent);
  const auto columns = taps_of_middle(picture.width, picture.width * extent / shorter, extent);
  // Only what the square needs is resized: a narrow picture would be very long.
  const std::int64_t first = rows.front().begin;
  return resize_columns(resize_rows(picture, first, rows.back().end(), columns), first, rows);
}

}  // namespace ddprun::data
