#pragma once

#include <filesystem>

#include "worker/tensor/tensor.h"

namespace ddprun::optim {

// Makes a tensor of zeros in a file of its own in the folder. The kernel writes the file's pages out if memory is
// short, and reads them when they are used. The file has no name: nothing of it remains, however the process ends. Its
// blocks are reserved at once: a full disk is an error here, and no signal later.
//
// Ownership: the tensors that see the memory keep the file. Threads: any.
// Errors: Errc::usage for a folder that is not there; Errc::io naming folder and size.
Tensor zeros_in_file(const Shape& shape, DType dtype, const std::filesystem::path& folder);

}  // namespace ddprun::optim
