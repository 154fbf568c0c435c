#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/process_group.h"

namespace ddprun::trainer {

// A folder of checkpoints as a rank sees it. Hosts without a common file system have a folder each.
struct PartsFolder {
  checkpoint::Checkpoints* checkpoints;  // outlives the folder
  // Whether this rank is the one of those that see the folder that makes, publishes and removes checkpoints in it.
  bool is_keeper = false;
};

// Returns whether no rank before this one sees the same folder, which is made if it is missing: each leaves a file in
// it for a moment. timeout: how long the disk may take to answer (checkpoint::CheckpointOptions). Collective. Errors:
// Errc::io naming the file; those of the group.
bool is_first_in_folder(const std::filesystem::path& folder, ProcessGroup& group, std::chrono::milliseconds timeout);

// Saves a checkpoint to which each rank writes its part, as name (checkpoint::Checkpoints). Once all files are on all
// disks the keepers publish them, and once all have done that they remove older ones: a rank that dies at any time, or
// a full disk, leaves a complete checkpoint.
//
// The ranks begin within the group's timeout of one another. After that they wait for the slowest disk, as long as it
// answers (checkpoint::CheckpointOptions::timeout), or for the end of a rank.
//
// own: this rank's part, and the run's state. placements: the text of placements.json, the same at all ranks.
// Collective over a group in which nothing else runs meanwhile, on any thread. Errors: that of the first rank that has
//   failed, at all ranks, naming it, its host and the file; those of the group.
void save_parts(const PartsFolder& folder, ProcessGroup& group, const std::string& name, const checkpoint::Content& own,
                const std::string& placements);

}  // namespace ddprun::trainer
