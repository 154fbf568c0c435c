#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/parallel/sharding/placement.h"
#include "worker/parallel/stored/stored_state.h"

namespace ddprun::stored {

// The files of a checkpoint, as the ranks of a group can read them.
struct StoredFiles {
  std::filesystem::path folder;
  StoredState state;
  std::vector<int> readers;  // by rank that has written a file: the rank of the group that reads it
};

// Reads where the tensors of a checkpoint lie, and checks that the files have them. Collective over the peers that have
// found it. Throws Errc::io naming the file and what is wrong with it, the same at all peers.
StoredFiles open_files(const checkpoint::Found& found, const checkpoint::Peers& peers);
// Does the same without the result (checkpoint::ContentCheck).
void check_files(const checkpoint::Found& found, const checkpoint::Peers& peers);

// Names the parts of this rank that load() fills with tensors of one kind; they are undefined where it has none.
struct LoadTarget {
  std::vector<sharding::PlacedTensor> tensors;  // the same at all ranks, placed on a mesh of the group's ranks
  std::vector<Tensor> own;
};

// Throws Errc::mismatch naming the tensor that is missing, or has another shape or dtype, and the checkpoint; if
// is_all, also for tensors that nobody takes.
void check_tensors(const StoredFiles& files, Kind kind, const std::vector<sharding::PlacedTensor>& tensors,
                   bool is_all);

// Fills the parts of all ranks from files of any layout: each range is read by the rank that reads the file, once, and
// sent to whom it belongs. Beside the parts it needs the memory of one of them, and a copy of those on a device.
//
// Collective. Errors: Errc::io naming the file; those of the group. REQUIRES: check_tensors()
void load(const StoredFiles& files, Kind kind, const LoadTarget& target, ProcessGroup& group);

}  // namespace ddprun::stored
