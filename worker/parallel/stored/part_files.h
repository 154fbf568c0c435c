#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "worker/checkpoint/safetensors.h"
#include "worker/parallel/stored/stored_state.h"

namespace ddprun::stored {

// The files of a checkpoint in which the parts of tensors lie, each opened when it is needed.
//
// Ownership: the state outlives this object. Threads: one at a time. Errors: Errc::io naming the file and what is wrong
//   with it, such as a tensor that the placements name and the file does not have.
class PartFiles {
 public:
  PartFiles(std::filesystem::path folder, const StoredState& state) : folder_(std::move(folder)), state_(state) {}

  // Reads so many bytes from an offset in a rank's part of a tensor.
  void read(Kind kind, const sharding::PlacedTensor& tensor, int rank, std::uint64_t offset, std::span<std::byte> out);
  // Checks that a rank's file has all parts that it should have.
  void check(int rank);

 private:
  // A part in an open file.
  struct Part {
    const checkpoint::SafetensorsFile& file;
    const checkpoint::TensorInfo& info;
  };
  Part find(Kind kind, const sharding::PlacedTensor& tensor, int rank);

  const std::filesystem::path folder_;
  const StoredState& state_;
  std::map<std::string, checkpoint::SafetensorsFile> files_;  // by name
};

}  // namespace ddprun::stored
