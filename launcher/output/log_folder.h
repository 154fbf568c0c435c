#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun {

// Where an agent's logs go, in torchrun's layout: <base>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log,
// stderr.log, error.json}.
class LogFolder {
 public:
  // base empty: a new folder torchelastic_XXXXXXXX in the temporary folder, which remove_if_temporary() removes;
  // /dev/null: no files at all. Throws Errc::io naming the folder.
  LogFolder(const std::string& base, const std::string& run_id, const std::filesystem::path& temporary_folder);

  bool enabled() const { return !root_.empty(); }
  // The folder that remove_if_temporary() removes; empty when the user named the base.
  const std::filesystem::path& temporary() const { return temporary_; }
  // The folder of this run; empty when there are no files.
  const std::filesystem::path& root() const { return root_; }
  // The folder of one attempt, which its first worker's folder makes; empty when there are no files.
  std::filesystem::path attempt_folder(std::int64_t attempt) const;
  // Makes the folder of one worker in one attempt, empty. Empty path when there are no files.
  std::filesystem::path worker_folder(std::int64_t attempt, int local_rank) const;

  // At the end: a temporary folder goes unless it is worth keeping (files that the user asked for, error files of a
  // failure).
  void remove_if_temporary(bool keep) const;

 private:
  std::filesystem::path temporary_;  // what to remove: the mkdtemp folder, or empty
  std::filesystem::path root_;
};

}  // namespace ddprun
