#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/run_state.h"

// The search for a checkpoint whose files may lie on several hosts that have no file system in common.
namespace ddprun::checkpoint {

// The processes that search together, each in a folder of the same name. Whether two of them see the same folder
// matters only in so far as each file has to be seen by one.
struct Peers {
  int rank = 0;
  // Returns every process' text, by rank. Collective.
  std::function<std::vector<std::string>(const std::string& own)> all_gather = [](const std::string& own) {
    return std::vector<std::string>{own};
  };
};

// A checkpoint that was found whole: size and SHA-256 of every file were as its manifest says.
struct Found {
  std::filesystem::path folder;
  RunState state;
  // True if model, optimizer and averages lie in parts of ranks, and placements_file says where; otherwise they have a
  // file each.
  bool has_parts = false;
  FileDigests files = {};  // as its manifest lists them
  // For each file the process that has verified it, and so can read it.
  std::map<std::string, int> readers = {};

  bool has(const std::string& file) const { return readers.contains(file); }
  // Throws Errc::io if the manifest does not list the file.
  int reader_of(const std::string& file) const;
};

// Folders of checkpoints, with their steps.
using StepFolders = std::vector<std::pair<std::int64_t, std::filesystem::path>>;
// Returns those in a folder, newest first; none if it does not exist. Throws InaccessibleFile if it cannot be
// listed.
StepFolders step_folders(const std::filesystem::path& folder);

// Does an act at each process, and returns what each has returned, by rank. Throws InaccessibleFile, or Errc::io, if an
// act does: the first error of any process, at all of them. Collective.
std::vector<std::string> all_do(const Peers& peers, const std::function<std::string()>& act);

// Examines what the files say, once each is as the manifest has it. Collective over the peers: throws Errc::io, the
// same at all, if they contradict one another, and the checkpoint counts as damaged.
using ContentCheck = std::function<void(const Found& found, const Peers& peers)>;

// Examines a checkpoint of which each process sees some files, with each file read by one of them. Collective; the
// result, and the error, is the same at all. Where hosts have different manifests, the first that is complete counts,
// from that of the lowest rank. Throws InaccessibleFile, or Errc::io saying what is missing, torn, changed or wrong in
// itself.
Found examine_checkpoint(const std::filesystem::path& folder, const Peers& peers, const ContentCheck& check = {});
// Does the same in a process that sees all of it.
Found verify_checkpoint(const std::filesystem::path& folder, const ContentCheck& check = {});

}  // namespace ddprun::checkpoint
