#pragma once

#include <memory>
#include <optional>
#include <string>

#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/checkpoint/search.h"

namespace ddprun::checkpoint {

// The checkpoints of one run: folders step_000123 under one folder; FORMAT.md describes them. Of several processes that
// save there, each waits until another one has ended its save or is gone (FolderLock). A checkpoint appears whole by a
// rename or not at all, whenever the process is killed or the power fails; the one just written is on the disk before
// older ones are removed. A checkpoint that cannot be opened or read (InaccessibleFile) may be intact: it is never
// renamed, replaced or removed. If the disk does not answer for CheckpointOptions::timeout, what is being saved fails
// with Errc::io naming the file. Not thread-safe.
class Checkpoints {
 public:
  // If the folder cannot be made, that is found out before the work. Throws Errc::io naming it.
  explicit Checkpoints(CheckpointOptions options);

  // Replaces a checkpoint of the same step. Throws Errc::io naming the file and the cause (a full disk, a checkpoint of
  // this step that cannot be read); then the older checkpoints are as they were.
  void save(const Content& content);
  // Replaces the one in the folder "best", which save() never removes and newest() passes over. Throws like save().
  void save_best(const Content& content);

  // The acts by which several ranks save a checkpoint of parts: lock() and begin() at one rank for each folder,
  // write_part() at all, and then at the former complete(), publish() and remove_older(). Each begins when all ranks
  // have done the one before it. name: step_name() or best_name. They throw like save(); after an error of any rank
  // those that have published call withdraw(), and one rank for each folder remove_leftovers().
  //
  // Waits until no other process saves in the folder; none does while the result exists. It may outlive this object.
  std::shared_ptr<const FolderLock> lock() const;
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
  std::optional<Found> best(const Peers& peers = {}, const ContentCheck& check = {}) const;
  // Returns the newest that is whole, or none if the folder holds no checkpoint. Newer ones are skipped, each with a
  // warning of the first peer that says why. Throws Errc::usage with the reason when there are checkpoints and all are
  // damaged, InaccessibleFile if some may be intact.
  std::optional<Found> newest(const Peers& peers = {}, const ContentCheck& check = {});
  // Returns whether the folder holds checkpoints, whole or not.
  bool any() const;

 private:
  void save_as(const std::string& name, const Content& content);
  // Does an act with the folder, as long as the disk answers.
  template <class Act>
  auto watched(Act act) const;

  CheckpointOptions options_;
  std::shared_ptr<DiskWatch> watch_;
  std::shared_ptr<const CheckpointFolder> folder_;
  UnsureCheckpoints unsure_;  // what newest() has found
};

}  // namespace ddprun::checkpoint
