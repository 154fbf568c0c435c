#include "launcher/output/log_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/random.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_prefix = "torchelastic_";
constexpr std::string_view random_letters = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::size_t random_length = 8;
constexpr const char* owner_file = ".ddprun_owner";

std::string random_name() {
  std::array<unsigned char, random_length> bytes;
  fill_random(bytes);
  std::string name;
  for (const unsigned char byte : bytes) name += random_letters[byte % random_letters.size()];
  return name;
}

// Makes a new folder that only its owner can read: prefix and eight random characters.
fs::path make_unique_folder(const fs::path& prefix) {
  for (;;) {
    fs::path path = prefix.string() + random_name();
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST)
      throw make_error(Errc::io, "cannot make the log folder {}: {}", path.string(), errno_text(errno));
  }
}

fs::path make_temporary_folder(const fs::path& parent) {
  try {
    return make_unique_folder(parent / temporary_prefix);
  } catch (const Error& e) {
    throw make_error(Errc::io, "{}; set TMPDIR, or --log_dir (/dev/null: no log files)", e.what());
  }
}

void make_folders(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) throw make_error(Errc::io, "cannot make the log folder {}: {}", path.string(), failure.message());
}

bool is_temporary_name(std::string_view name) {
  return name.size() == temporary_prefix.size() + random_length && name.starts_with(temporary_prefix) &&
         name.find_first_not_of(random_letters, temporary_prefix.size()) == std::string_view::npos;
}

// Marks a folder as that of a running agent of this host. A file system without locks only lacks the mark.
UniqueFd mark_owned(const fs::path& folder) {
  const auto path = folder / owner_file;
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
  const auto host = local_host_name();
  if (::write(file.get(), host.data(), host.size()) != static_cast<ssize_t>(host.size())) return {};
  return file;
}

bool belongs_to_this_user(const struct stat& status, mode_t type) {
  return (status.st_mode & S_IFMT) == type && status.st_uid == ::geteuid();
}

// Returns whether the folder was marked by an agent of this host and user that has ended: its lock is free. The host is
// compared because not every shared file system passes locks on to other hosts.
bool is_abandoned(const fs::path& folder) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !belongs_to_this_user(status, S_IFDIR)) return false;
  const UniqueFd file(::open((folder / owner_file).c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &status) != 0 || !belongs_to_this_user(status, S_IFREG)) return false;
  char host[1024];
  const auto got = ::read(file.get(), host, sizeof host);
  if (got <= 0 || std::string_view(host, static_cast<std::size_t>(got)) != local_host_name()) return false;
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

// Every start of ddprun reads this folder, which often is /tmp: to make a path for each of 450 entries took a quarter
// of the instructions of a start.
std::vector<std::string> temporary_names_in(const fs::path& parent) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(parent.c_str()), ::closedir);
  if (!folder) return names;
  while (const dirent* entry = ::readdir(folder.get()))
    if (is_temporary_name(entry->d_name)) names.emplace_back(entry->d_name);
  return names;
}

void remove_abandoned_folders(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& name : temporary_names_in(parent))
    if (is_abandoned(parent / name)) fs::remove_all(parent / name, ignored);
}

// "2", and "2.1" for the first replacement.
std::string name_of_worker(int local_rank, std::uint64_t replacement) {
  return replacement == 0 ? std::to_string(local_rank) : fmt::format("{}.{}", local_rank, replacement);
}

}  // namespace

fs::path temporary_folder(const Environment& environment) {
  const auto chosen = environment.get("TMPDIR");
  if (!chosen || chosen->empty()) return "/tmp";
  std::error_code failure;
  if (!fs::is_directory(*chosen, failure)) {
    log::warn("TMPDIR = {} is not a folder; using /tmp", *chosen);
  } else if (::access(chosen->c_str(), W_OK | X_OK) != 0) {
    log::warn("TMPDIR = {} cannot be written: {}; using /tmp", *chosen, errno_text(errno));
  } else {
    return *chosen;
  }
  return "/tmp";
}

LogFolder::LogFolder(const std::string& base, const std::string& run_id, const fs::path& temporary_folder,
                     Temporary kind) {
  if (base == "/dev/null") {
    make_error_folder(temporary_folder);
    return;
  }
  if (base.empty()) {
    remove_abandoned_folders(temporary_folder);
    temporary_ = make_temporary_folder(temporary_folder);
    if (kind == Temporary::removable) {
      owner_ = mark_owned(temporary_);
      root_ = temporary_;
      return;
    }
  } else {
    make_folders(base);
  }
  worker_folders_ = true;
  std::string name = run_id + "_";
  std::replace(name.begin(), name.end(), '/', '_');
  root_ = make_unique_folder((base.empty() ? temporary_ : fs::absolute(base)) / name);
}

// The folder is not required: without it each worker reports its failure only on standard error.
void LogFolder::make_error_folder(const fs::path& parent) {
  remove_abandoned_folders(parent);
  try {
    temporary_ = make_temporary_folder(parent);
    owner_ = mark_owned(temporary_);
  } catch (const Error&) {
    temporary_.clear();
  }
}

fs::path LogFolder::error_file(std::int64_t attempt, int local_rank, std::uint64_t replacement) const {
  const auto worker = name_of_worker(local_rank, replacement);
  if (worker_folders_) return attempt_folder(attempt) / worker / "error.json";
  return temporary_.empty() ? fs::path() : temporary_ / fmt::format("error_{}_{}.json", attempt, worker);
}

fs::path LogFolder::attempt_folder(std::int64_t attempt) const {
  return worker_folders_ ? root_ / fmt::format("attempt_{}", attempt) : fs::path();
}

fs::path LogFolder::worker_folder(std::int64_t attempt, int local_rank, std::uint64_t replacement) const {
  if (!worker_folders_) return {};
  auto folder = attempt_folder(attempt) / name_of_worker(local_rank, replacement);
  if (::mkdir(folder.c_str(), 0777) == 0) return folder;
  std::error_code ignored;
  if (errno == EEXIST) fs::remove_all(folder, ignored);
  make_folders(folder);
  return folder;
}

void LogFolder::remove_if_temporary(bool keep) const {
  if (keep || temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

UniqueFd open_log_file(const fs::path& path) {
  // O_NONBLOCK, since a worker may have put a FIFO there; it has no effect on a regular file.
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!file) throw make_error(Errc::io, "cannot open the log file {}: {}", path.string(), errno_text(errno));
  return file;
}

LogFile::LogFile(fs::path path) : path_(std::move(path)), file_(open_log_file(path_)) {}

void LogFile::write(std::string_view bytes) {
  while (file_ && !bytes.empty()) {
    const auto got = ::write(file_.get(), bytes.data(), bytes.size());
    if (got >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      log::error("cannot write the log file {}: {}; nothing more is written to it", path_.string(), errno_text(errno));
      file_.reset();
    }
  }
}

}  // namespace ddprun
