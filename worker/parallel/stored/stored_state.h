#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/parallel/sharding/placement.h"

// A run's state in the files of a checkpoint.
namespace ddprun::stored {

// The tensors of a state are of three kinds.
enum class Kind { model, optimizer, averages };
inline constexpr std::array all_kinds{Kind::model, Kind::optimizer, Kind::averages};

// Tensors with their placements on a mesh of the ranks that wrote them, and for each part the rank whose file has it: a
// part that several ranks have is written once.
struct StoredTensors {
  std::vector<sharding::PlacedTensor> tensors;
  std::vector<std::vector<int>> writers;  // by tensor, and by part in the order of PlacedTensor::parts()

  // Returns whether the rank's part of a tensor is in its file.
  bool is_written_by(int rank, std::size_t tensor) const;
};

// Where all tensors of a checkpoint lie. A value; any number of threads may read.
class StoredState {
 public:
  // is_whole: the tensors of a kind have a file each, which is that of rank 0; otherwise each rank has a file.
  StoredState(int ranks, bool is_whole) : ranks_(ranks), is_whole_(is_whole) {}

  int ranks() const { return ranks_; }
  bool is_whole() const { return is_whole_; }
  const StoredTensors& of(Kind kind) const { return tensors_[static_cast<std::size_t>(kind)]; }
  StoredTensors& of(Kind kind) { return tensors_[static_cast<std::size_t>(kind)]; }

  // Returns the names of the file in which a rank's parts lie, and of a tensor in it.
  std::string file_of(Kind kind, int rank) const;
  std::string name_in_file(Kind kind, const std::string& tensor) const;

 private:
  int ranks_;
  bool is_whole_;
  std::array<StoredTensors, all_kinds.size()> tensors_;
};

// Chooses for each part one of the ranks that have it, such that all write about as many bytes.
//
// Deterministic: all ranks choose alike. Threads: one at a time. Errors: none.
class WriterChoice {
 public:
  explicit WriterChoice(int ranks) : bytes_(static_cast<std::size_t>(ranks)) {}

  // first_counts: whether copies of a tensor may differ, so that the one at the lowest rank is written.
  StoredTensors choose(std::vector<sharding::PlacedTensor> tensors,
                       const std::function<bool(const std::string& tensor)>& first_counts = {});

 private:
  std::vector<std::int64_t> bytes_;  // by rank
};

// Reads where the tensors of a checkpoint lie. Throws Errc::io naming the file and what is wrong with it.
StoredState stored_state_of(const checkpoint::Found& found);

}  // namespace ddprun::stored
