#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/tensor_source.h"

namespace ddprun::stored {

// A trained model's tensors in files, as one process has them: parameters, then buffers.
struct ModelSource {
  std::string name;  // that of the file, or of the checkpoint
  std::unique_ptr<checkpoint::TensorSource> tensors;
  bool has_averages = false;  // whether they have averages (train.ema) in the place of parameters

  std::uint64_t bytes() const;  // those of all tensors
};

// Opens the model that a checkpoint's run is evaluated with: with averages if there are any. Throws Errc::io naming the
// file and what is wrong with it.
ModelSource open_model(const checkpoint::Found& found);

}  // namespace ddprun::stored
