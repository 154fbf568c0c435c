#pragma once

#include <filesystem>

#include "worker/checkpoint/checkpoint.h"

namespace ddprun::checkpoint {

// Writes the model that a checkpoint's run is evaluated with, parameters, then buffers, into one safetensors file: the
// averages if there are any. Streams it, in pieces of a few megabytes. The file is complete or absent; one that exists
// is replaced at once. Throws Errc::io naming the file and the cause.
void export_model(const Found& checkpoint, const std::filesystem::path& file);

}  // namespace ddprun::checkpoint
