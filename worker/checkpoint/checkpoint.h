#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/search.h"

namespace ddprun::checkpoint {

// The content of one checkpoint, or of one rank's part of it. The tensors' memory is the caller's.
struct Content {
  std::vector<TensorView> model;
  std::vector<TensorView> optimizer;
  RunState state;
  std::vector<TensorView> hook = {};  // the communication hook's, of all ranks; if empty, there is no such file
  std::vector<TensorView> ema = {};   // averages of the parameters, then buffers; if empty, there is no such file
};

struct CheckpointOptions {
  std::filesystem::path folder;
  bool makes_folder = true;  // when it is missing
  int keep = 2;              // the number of newest ones to keep, at least 1
  // Called with its name before every step of save() that changes the disk: where tests stop the process or fail.
  std::function<void(std::string_view)> before = [](std::string_view) {};
};

// The checkpoints of one run: folders step_000123 under one folder; FORMAT.md describes them. Meant for one process at
// a time that changes them. A checkpoint appears whole by a rename or not at all, whenever the process is killed or the
// power fails; the one just written is on the disk before older ones are removed. A checkpoint that cannot be opened or
// read (InaccessibleFile) may be intact: it is never renamed, replaced or removed. Not thread-safe.
class Checkpoints {
 public:
  // If the folder cannot be made, that is found out before the work. Throws Errc::io naming it.
  explicit Checkpoints(CheckpointOptions options);

  // Replaces a checkpoint of the same step. Throws Errc::io naming the file and the cause (a full disk, a checkpoint of
  // this step that cannot be read); then the older checkpoints are as they were.
  void save(const Content& content);
  // Replaces the one in the folder "best", which save() never removes and newest() passes over. Throws like save().
  void save_best(const Content& content);

  // The acts by which several ranks save a checkpoint of parts: begin() at one rank for each folder, write_part() at
  // all, and then at the former complete(), publish() and remove_older(). Each begins when all ranks have done the one
  // before it. name: step_name() or best_name. They throw like save(); after an error of any rank those that have
  // published call withdraw(), and one rank for each folder remove_leftovers().
  void begin(const std::string& name) const;
  // Writes files in the folder that begin() has made, and returns their sizes and hashes: the rank's part, and what the
  // content has of hooks. Other than the other acts, it needs no folder of its own.
  FileDigests write_part(const std::string& name, int rank, const Content& content) const;
  // Writes the files that are common to these parts, among them placements_file with this text.
  void complete(const std::string& name, const RunState& state, const std::string& placements, FileDigests parts) const;
  // Gives the checkpoint its name. One that has the name already is kept, under another name.
  void publish(const std::string& name) const;
  // Makes the folder as it was before publish(). Warns if it cannot.
  void withdraw(const std::string& name) const;
  // Removes the one that publish() has kept, and, if the name is that of a step, those beyond the newest.
  void remove_older(const std::string& name);
  void remove_leftovers() const;

  // Returns the one in "best", or none if it does not exist. Throws Errc::io with the reason when it is not whole.
  // Collective over the peers, like newest().
  std::optional<Found> best(const Peers& peers = {}) const;
  // Returns the newest that is whole, or none if the folder holds no checkpoint. Newer ones are skipped, each with a
  // warning of the first peer that says why. Throws Errc::io with the reason when there are checkpoints and none is
  // whole.
  std::optional<Found> newest(const Peers& peers = {});
  // Returns whether the folder holds checkpoints, whole or not.
  bool any() const;

 private:
  void save_as(const std::string& name, const Content& content);
  FileDigests write_whole(const std::filesystem::path& aside, const Content& content) const;
  void write_rest(const std::string& name, Manifest manifest, const RunState& state) const;
  std::filesystem::path aside_of(const std::string& name) const;
  std::filesystem::path replaced_of(const std::string& name) const;
  void check_replaceable(const std::filesystem::path& target) const;
  void prune(std::int64_t saved_step) const;

  CheckpointOptions options_;
  std::set<std::filesystem::path> inaccessible_;  // checkpoints that newest() could not read
  std::set<std::filesystem::path> incomplete_;    // those that it found damaged, or that no host has all of
};

}  // namespace ddprun::checkpoint
