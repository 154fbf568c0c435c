#include <png.h>

#include "common/error.h"
#include "worker/data/picture_formats.h"

namespace ddprun::data {
namespace {

// Frees the memory that libpng holds for an image.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

}  // namespace

Picture decode_png(std::span<const std::byte> bytes, const std::string& name) {
  PngImage png;
  const auto fail = [&] { return make_error(Errc::io, "{}: no PNG that can be read: {}", name, png.image.message); };
  if (png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) == 0) throw fail();
  check_picture_size(png.image.height, png.image.width, name);
  png.image.format = PNG_FORMAT_RGB;
  Picture picture{.height = png.image.height, .width = png.image.width, .levels = {}};
  picture.levels.resize(PNG_IMAGE_SIZE(png.image));
  const png_color black{};
  if (png_image_finish_read(&png.image, &black, picture.levels.data(), 0, nullptr) == 0) throw fail();
  return picture;
}

}  // namespace ddprun::data
