#pragma once

#include "worker/data/picture.h"

// The decoders of decode_picture(), one for each library.
namespace ddprun::data {

Picture decode_png(std::span<const std::byte> bytes, const std::string& name);
Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name);

// Throws Errc::io naming the file for a picture without pixels or with too many.
void check_picture_size(std::int64_t height, std::int64_t width, const std::string& name);

}  // namespace ddprun::data
