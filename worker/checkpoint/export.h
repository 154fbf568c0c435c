#pragma once

#include <filesystem>

#include "worker/checkpoint/tensor_source.h"

namespace ddprun::checkpoint {

// Writes tensors into one safetensors file. Streams them, in pieces of a few megabytes. The file is complete or absent;
// one that exists is replaced at once. Throws Errc::io naming the file and the cause.
void export_model(const TensorSource& model, const std::filesystem::path& file);

}  // namespace ddprun::checkpoint
