#include "worker/data/picture.h"

#include <algorithm>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/data/picture_files.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

namespace {

Picture decoded(const std::string& bytes) {
  return decode_picture(std::as_bytes(std::span(bytes)), "file");
}

std::string error_of(const std::string& bytes) {
  try {
    decoded(bytes);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::io);
    return e.what();
  }
  return "no error";
}

int largest_difference(const Picture& a, const Picture& b) {
  REQUIRE(a.levels.size() == b.levels.size());
  int largest = 0;
  for (std::size_t i = 0; i < a.levels.size(); ++i) largest = std::max(largest, std::abs(a.levels[i] - b.levels[i]));
  return largest;
}

}  // namespace

TEST_CASE("a PNG file has the pixels that were written, a JPEG file nearly those") {
  const Picture picture = some_picture(20, 31, 90);
  const Picture png = decoded(png_bytes(picture));
  CHECK(png.height == 20);
  CHECK(png.width == 31);
  CHECK(png.levels == picture.levels);
  const Picture jpeg = decoded(jpeg_bytes(picture));
  CHECK(jpeg.height == 20);
  CHECK(jpeg.width == 31);
  CHECK(largest_difference(jpeg, picture) <= 8);
}

TEST_CASE("a file that is damaged or no picture is an error that names it") {
  CHECK(error_of("") == "file: neither a PNG nor a JPEG file");
  CHECK(error_of("GIF89a") == "file: neither a PNG nor a JPEG file");
  const auto png = png_bytes(some_picture(40, 40)), jpeg = jpeg_bytes(some_picture(40, 40));
  for (const std::size_t kept : {4UL, 20UL, png.size() / 2, png.size() - 20})
    CHECK_THAT(error_of(png.substr(0, kept)), Catch::StartsWith("file: no PNG that can be read: "));
  for (const std::size_t kept : {4UL, 20UL, jpeg.size() / 2})
    CHECK_THAT(error_of(jpeg.substr(0, kept)), Catch::StartsWith("file: no JPEG that can be read: "));
  auto changed = png;
  changed[png.size() / 2] ^= 1;
  CHECK_THAT(error_of(changed), Catch::StartsWith("file: no PNG that can be read: "));
  // The header has a wrong width, with its checksum, as libpng checks the width too late.
  auto large = jpeg;
  const auto frame = large.find("\xff\xc0");
  large[frame + 5] = large[frame + 7] = '\xff';
  CHECK(error_of(large) == "file: a picture of 65320 x 65320 pixels; from 1 to 67108864 of them can be read");
}

TEST_CASE("a picture of the size that is asked for stays as it is, others keep their colours") {
  const Picture picture = some_picture(12, 12, 33);
  CHECK(resize_and_crop(picture, 12).levels == picture.levels);
  for (const std::int64_t extent : {1, 5, 12, 40}) {
    const Picture plain{.height = 9, .width = 23, .levels = std::vector<std::uint8_t>(9 * 23 * 3, 77)};
    const Picture square = resize_and_crop(plain, extent);
    CHECK(square.height == extent);
    CHECK(square.width == extent);
    CHECK(square.levels == std::vector<std::uint8_t>(static_cast<std::size_t>(extent * extent * 3), 77));
  }
}

TEST_CASE("shrinking takes the weighted mean of all that a pixel covers") {
  // Columns 0 0 0 255 255 255 255 0 of grey are reduced to half: the triangle of each new pixel covers four old ones
  // with the weights 1, 3, 3, 1 of 8; at the edges the outside is left out.
  Picture picture{.height = 8, .width = 8, .levels = {}};
  for (int row = 0; row < 8; ++row)
    for (const int value : {0, 0, 0, 255, 255, 255, 255, 0})
      for (int channel = 0; channel < 3; ++channel) picture.levels.push_back(static_cast<std::uint8_t>(value));
  const Picture half = resize_and_crop(picture, 4);
  const std::vector<int> expected{0, 128, 255, 146};  // 0; (3 + 1) / 8; 1; (1 + 3) / 7
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t column = 0; column < 4; ++column) CHECK(half.levels[3 * (4 * row + column)] == expected[column]);
}

TEST_CASE("the square is that in the middle") {
  const Picture wide = resize_and_crop(some_picture(10, 30, 5), 10);
  CHECK(wide.levels[0] == 200 * 10 / 30);
  CHECK(wide.levels[3 * 9] == 200 * 19 / 30);
  const Picture high = resize_and_crop(some_picture(31, 10, 5), 10);
  CHECK(high.levels[1] == 200 * 10 / 31);  // 10.5 is rounded to even
  // A narrow picture is enlarged only where the square is.
  CHECK(resize_and_crop(some_picture(1, 60'000), 64).levels.size() == std::size_t{64} * 64 * 3);
}
