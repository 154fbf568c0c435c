#include "worker/checkpoint/folder_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/error.h"
#include "common/io_error.h"
#include "common/log.h"

namespace ddprun::checkpoint {

FolderLock::FolderLock(const std::filesystem::path& folder, DiskWatch& watch) : path_(folder / ".lock"), watch_(watch) {
  do {
    watch_.request("create " + path_.string());
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd_) throw_io_error("create", path_);
  } while (lock() && !is_current());
}

FolderLock::~FolderLock() {
  if (fd_) ::unlink(path_.c_str());  // while it is locked: no other process can have locked this file since
}

// Returns false if there are no locks.
bool FolderLock::lock() {
  watch_.request("lock " + path_.string());
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) {
    log::info("a save in {} waits until another process has ended its save there", path_.parent_path().string());
    watch_.request(fmt::format("lock {}, as another process saves there", path_.string()));
    while (::flock(fd_.get(), LOCK_EX) != 0)
      if (errno != EINTR) throw_io_error("lock", path_);
    return true;
  }
  log::debug("cannot lock {}: {}; nothing keeps another process from saving there at the same time", path_.string(),
             errno_text(errno));
  return false;
}

// Whoever had the lock before may have removed the file.
bool FolderLock::is_current() const {
  struct stat own {
  }, named{};
  watch_.request("find " + path_.string());
  return ::fstat(fd_.get(), &own) == 0 && ::stat(path_.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

}  // namespace ddprun::checkpoint
