#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/checkpoint/tensor_source.h"
#include "worker/nn/module.h"

// Loads and saves parameters and buffers of a module as safetensors files.
namespace ddprun::nn {

struct LoadOptions {
  // If true, every tensor of the file has to have its place in the module, and the other way round; otherwise what does
  // not match is left alone and reported.
  bool strict = true;
  // Only tensors of the file whose names begin with this are loaded, under the rest of the name: "transformer." for a
  // model that is part of a larger one.
  std::string prefix;
  // Tensors of the file whose names end in one of these are passed over, such as ".attn.bias" and ".attn.masked_bias":
  // the causal masks that older files of GPT-2 have.
  std::vector<std::string> ignored_suffixes;
  // Parameters and buffers of the module that one of these means (matches()) are left as they are, whether the file has
  // them or not: "fc" for a last layer with another number of classes.
  std::vector<std::string> excluded;
};

struct LoadReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // in the module, not in the file
  std::vector<std::string> unexpected;  // in the file, not in the module
};

// Copies the file's tensors into the module, converted to its dtypes. Errors: Errc::io for a file that cannot be read,
// Errc::mismatch for a shape that differs, and, if strict, for names that are missing or unexpected; the module is
// unchanged then.
LoadReport load_state(Module& module, const std::filesystem::path& file, const LoadOptions& options = {});
// Does the same with tensors from elsewhere. name: that of their place, for errors.
LoadReport load_state(Module& module, const checkpoint::TensorSource& tensors, const std::string& name,
                      const LoadOptions& options = {});

// Replaces the file atomically. Throws Errc::io.
void save_state(const Module& module, const std::filesystem::path& file);

}  // namespace ddprun::nn
