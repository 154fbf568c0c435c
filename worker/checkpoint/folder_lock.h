#pragma once

#include <filesystem>

#include "common/unique_fd.h"
#include "worker/checkpoint/disk_watch.h"

namespace ddprun::checkpoint {

// Keeps other processes from saving in a folder of checkpoints: an exclusive flock(2) of the file .lock in it. The
// kernel releases it when the process is gone, however that ended; a file server, when the host is. Waits for the
// process that has it. Where the file system has no locks, it excludes nobody.
//
// Ownership: holds the lock and its file, which the destructor removes. Threads: one at a time. Errors: Errc::io naming
//   the file; that of the watch, to which each request but those of the destructor is named.
class FolderLock {
 public:
  FolderLock(const std::filesystem::path& folder, DiskWatch& watch);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool lock();
  bool is_current() const;

  const std::filesystem::path path_;
  DiskWatch& watch_;
  UniqueFd fd_;
};

}  // namespace ddprun::checkpoint
