#include "ddprun/launcher/output/log_folder.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <string_view>
#include <sys/stat.h>

#include "ddprun/common/error.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::string random_name() {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device source;
  std::string name;
  for (int i = 0; i < 8; ++i) name += letters[source() % letters.size()];
  return name;
}

// A new folder, readable by its owner: prefix and eight random characters.
fs::path make_unique_folder(const fs::path& prefix) {
  for (;;) {
    fs::path path = prefix.string() + random_name();
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST)
      throw make_error(Errc::io, "cannot make the log folder {}: {}", path.string(), errno_text(errno));
  }
}

void make_folders(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) throw make_error(Errc::io, "cannot make the log folder {}: {}", path.string(), failure.message());
}

}  // namespace

LogFolder::LogFolder(const std::string& base, const std::string& run_id, const fs::path& temporary_folder) {
  if (base == "/dev/null") return;
  if (base.empty()) {
    temporary_ = make_unique_folder(temporary_folder / "torchelastic_");
  } else {
    make_folders(base);
  }
  std::string name = run_id + "_";
  std::replace(name.begin(), name.end(), '/', '_');
  root_ = make_unique_folder((base.empty() ? temporary_ : fs::absolute(base)) / name);
}

fs::path LogFolder::attempt_folder(std::int64_t attempt) const {
  return enabled() ? root_ / fmt::format("attempt_{}", attempt) : fs::path();
}

fs::path LogFolder::worker_folder(std::int64_t attempt, int local_rank) const {
  if (!enabled()) return {};
  auto folder = attempt_folder(attempt) / std::to_string(local_rank);
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

}  // namespace ddprun
