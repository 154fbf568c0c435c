#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Photographs and other pictures of any size, and their conversion to samples of one size.
namespace ddprun::data {

// Levels 0 .. 255 of red, green and blue of each pixel, in rows from the top.
struct Picture {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> levels;
};

// A larger picture is refused before memory for it is allocated.
inline constexpr std::int64_t max_picture_pixels = std::int64_t{1} << 26;

// Decodes a PNG or a JPEG file, which its first bytes tell apart; grey becomes red, green and blue, what is transparent
// becomes black. name: the file's, for errors. Throws Errc::io naming it and what is wrong, also for a file that ends
// too early; Errc::unsupported if the build has no library for the format.
Picture decode_picture(std::span<const std::byte> bytes, const std::string& name);
bool reads_pictures();  // returns whether this build has those libraries

// As torchvision's Resize(extent, antialias=True), CenterCrop(extent): scales the shorter side to this extent, then
// takes the square in the middle. Bilinear; where it shrinks, each pixel is a weighted mean of all that it covers.
Picture resize_and_crop(const Picture& picture, std::int64_t extent);

}  // namespace ddprun::data
