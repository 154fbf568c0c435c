#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/environment.h"
#include "common/unique_fd.h"

namespace ddprun {

// TMPDIR, or /tmp where TMPDIR is not set. Where TMPDIR is not a writable folder, logs a warning and returns /tmp.
std::filesystem::path temporary_folder(const Environment& environment);

// The folder of an agent's logs, in torchrun's layout:
//   <base>/<run id>_<8 random characters>/attempt_<n>/<local rank>/{stdout.log, stderr.log, error.json}
//
// If the user chose no base, the base is a new folder torchelastic_<8 random characters> in the temporary folder. If
// the user asked for no output either, that folder holds only error files, error_<n>_<local rank>.json, without a
// folder for each worker, since folders take a large part of the time in which workers start. It then belongs to the
// running agent: a file in it names the host and is locked (flock) while the agent lives. The constructor removes such
// folders of this user whose agent has ended.
//
// With the base /dev/null there are no log files. The workers' error files, by which they report a failure to the
// agent, are written to such a temporary folder even then, if one can be created.
//
// Not thread-safe. Errors: Errc::io naming the folder.
class LogFolder {
 public:
  // A removable folder holds only error files; one that is kept holds output that the user asked for.
  enum class Temporary { removable, kept };

  // base is empty for a temporary folder, /dev/null for no log files.
  LogFolder(const std::string& base, const std::string& run_id, const std::filesystem::path& temporary_folder,
            Temporary kind = Temporary::removable);

  bool enabled() const { return !root_.empty(); }
  // The folder that remove_if_temporary() removes; empty when the user chose the base.
  const std::filesystem::path& temporary() const { return temporary_; }
  // The folder of this run; empty with the base /dev/null.
  const std::filesystem::path& root() const { return root_; }
  // The folder of one attempt, created together with that of its first worker; empty when workers have no folders.
  std::filesystem::path attempt_folder(std::int64_t attempt) const;
  // Creates the folder of one worker in one attempt, empty. Returns an empty path when workers have no folders.
  // replacement: the number of this process of the local rank, since earlier files stay; 0: the first.
  std::filesystem::path worker_folder(std::int64_t attempt, int local_rank, std::uint64_t replacement = 0) const;

  // The path of a worker's error file, which the worker creates; empty when there is no folder for it.
  std::filesystem::path error_file(std::int64_t attempt, int local_rank, std::uint64_t replacement = 0) const;

  // Call at the end of the job: removes a temporary folder, unless keep (it holds output or a failure's error file).
  void remove_if_temporary(bool keep) const;

 private:
  void make_error_folder(const std::filesystem::path& parent);

  std::filesystem::path temporary_;
  std::filesystem::path root_;
  bool worker_folders_ = false;
  UniqueFd owner_;  // the locked file in temporary_
};

// Creates an empty log file for appending. Throws Errc::io naming it.
UniqueFd open_log_file(const std::filesystem::path& path);

// A log file that streams are copied to. Owns its descriptor; not thread-safe. The constructor throws Errc::io. After a
// failed write (a full disk) it logs one error and ignores further data.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path path);
  void write(std::string_view bytes);

 private:
  std::filesystem::path path_;
  UniqueFd file_;
};

}  // namespace ddprun
