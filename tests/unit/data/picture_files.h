#pragma once

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <jpeglib.h>
#include <png.h>
#include <string>

#include "worker/data/picture.h"

namespace ddprun::testing {

// Returns a picture with another colour at each pixel, none of them far from its neighbours.
inline data::Picture some_picture(std::int64_t height, std::int64_t width, int shade = 0) {
  data::Picture picture{.height = height, .width = width, .levels = {}};
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (const auto value : {200 * x / width, 200 * y / height, std::int64_t{shade}})
        picture.levels.push_back(static_cast<std::uint8_t>(value));
  return picture;
}

inline std::string png_bytes(const data::Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(image, size, 0, picture.levels.data(), 0, nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.levels.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

inline std::string jpeg_bytes(const data::Picture& picture) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(picture.width);
  jpeg.image_height = static_cast<JDIMENSION>(picture.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  auto* row = const_cast<std::uint8_t*>(picture.levels.data());
  for (; jpeg.next_scanline < jpeg.image_height; row += 3 * picture.width) jpeg_write_scanlines(&jpeg, &row, 1);
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return bytes;
}

}  // namespace ddprun::testing
