#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/disk_watch.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"

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
  std::chrono::milliseconds timeout{0};  // how long a save waits for an answer of the disk; 0: for ever
};

// Checkpoints that do not count among those that are kept.
struct UnsureCheckpoints {
  std::set<std::filesystem::path> inaccessible;  // those that could not be read
  std::set<std::filesystem::path> incomplete;    // those found damaged, or that no host has all of
};

// The acts of Checkpoints on the disk, where they are described. Each of their requests to the disk is named to the
// watch before, so an act that is abandoned changes nothing more, but for taking back what it was publishing.
// Immutable, so that such an act may share it.
class CheckpointFolder {
 public:
  CheckpointFolder(CheckpointOptions options, std::shared_ptr<DiskWatch> watch);

  // Waits until no other process saves in the folder; none does while the result exists. All other acts need it.
  std::unique_ptr<FolderLock> lock() const;
  // lock() and all acts from begin() to remove_older(), for a content that is whole.
  void save(const std::string& name, const Content& content, const UnsureCheckpoints& unsure) const;
  void begin(const std::string& name) const;
  FileDigests write_part(const std::string& name, int rank, const Content& content) const;
  void complete(const std::string& name, const RunState& state, const std::string& placements, FileDigests parts) const;
  void publish(const std::string& name) const;
  void withdraw(const std::string& name) const;
  void remove_older(const std::string& name, const UnsureCheckpoints& unsure) const;
  void remove_leftovers() const;

 private:
  void request(std::string_view what) const;
  void request(std::string_view what, const std::filesystem::path& path) const;
  FileDigest write_file(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write) const;
  FileDigests write_whole(const std::filesystem::path& aside, const Content& content) const;
  void write_rest(const std::string& name, Manifest manifest, const RunState& state) const;
  std::filesystem::path aside_of(const std::string& name) const;
  std::filesystem::path replaced_of(const std::string& name) const;
  void flush_folder(const std::filesystem::path& folder) const;
  void check_replaceable(const std::filesystem::path& target) const;
  void check_accessible(const std::filesystem::path& checkpoint) const;
  bool is_accessible(const std::filesystem::path& checkpoint) const;
  void undo_publish(const std::string& name) const;
  void remove(const std::filesystem::path& path) const;
  void retire(const std::filesystem::path& checkpoint) const;
  void prune(std::int64_t saved_step, const UnsureCheckpoints& unsure) const;

  const CheckpointOptions options_;
  const std::shared_ptr<DiskWatch> watch_;
};

}  // namespace ddprun::checkpoint
