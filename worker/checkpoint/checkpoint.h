#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"

namespace ddprun::checkpoint {

// The content of one checkpoint. The tensors' memory is the caller's.
struct Content {
  std::vector<TensorView> model;
  std::vector<TensorView> optimizer;
  RunState state;
  std::vector<TensorView> hook = {};  // the communication hook's, of all ranks; if empty, there is no such file
  std::vector<TensorView> ema = {};   // averages of the parameters, then buffers; if empty, there is no such file
};

// A checkpoint that was found whole: size and SHA-256 of every file were as its manifest says.
struct Found {
  std::filesystem::path folder;
  RunState state;
  SafetensorsFile model() const { return SafetensorsFile(folder / "model.safetensors"); }
  SafetensorsFile optimizer() const { return SafetensorsFile(folder / "optimizer.safetensors"); }
  bool has_hook = false;
  SafetensorsFile hook() const { return SafetensorsFile(folder / "hook.safetensors"); }  // REQUIRES: has_hook
  bool has_ema = false;
  SafetensorsFile ema() const { return SafetensorsFile(folder / "ema.safetensors"); }  // REQUIRES: has_ema
  // The model that the run is evaluated with.
  std::filesystem::path evaluated_model() const { return folder / (has_ema ? "ema.safetensors" : "model.safetensors"); }
};

struct CheckpointOptions {
  std::filesystem::path folder;  // made when it is missing
  int keep = 2;                  // the number of newest ones to keep, at least 1
  // Called with its name before every step of save() that changes the disk: where tests stop the process or fail.
  std::function<void(std::string_view)> before = [](std::string_view) {};
};

// The checkpoints of one run: folders step_000123 under one folder; FORMAT.md describes them. Meant for one process at
// a time (rank 0). A checkpoint appears whole by a rename or not at all, whenever the process is killed or the power
// fails; the one just written is on the disk before older ones are removed. A checkpoint that cannot be opened or read
// (InaccessibleFile) may be intact: it is never renamed, replaced or removed. Not thread-safe.
class Checkpoints {
 public:
  // Makes the folder: if it cannot be made, that is found out before the work. Throws Errc::io naming it.
  explicit Checkpoints(CheckpointOptions options);

  // Replaces a checkpoint of the same step. Throws Errc::io naming the file and the cause (a full disk, a checkpoint of
  // this step that cannot be read); then the older checkpoints are as they were.
  void save(const Content& content);
  // Replaces the one in the folder "best", which save() never removes and newest() passes over. Throws like save().
  void save_best(const Content& content);
  // Returns the one in "best", or none if it does not exist. Throws Errc::io with the reason when it is not whole.
  std::optional<Found> best();
  // Returns the newest that is whole, or none if the folder holds no checkpoint. Newer ones are skipped, each
  // with a warning that says why. Throws Errc::io with the reason when there are checkpoints and none is whole.
  std::optional<Found> newest();
  // Returns whether the folder holds checkpoints, whole or not.
  bool any() const;

 private:
  void save_as(const std::string& name, const Content& content) const;
  std::filesystem::path write_aside(const std::string& name, const Content& content) const;
  void publish(const std::filesystem::path& aside, const std::filesystem::path& target) const;
  void check_replaceable(const std::filesystem::path& target) const;
  void remove_leftovers() const;
  void prune(std::int64_t saved_step) const;

  CheckpointOptions options_;
  std::set<std::filesystem::path> inaccessible_;  // checkpoints that newest() could not read
};

// Throws InaccessibleFile, or Errc::io saying what is missing, torn, changed or wrong in itself.
Found verify_checkpoint(const std::filesystem::path& folder);

}  // namespace ddprun::checkpoint
