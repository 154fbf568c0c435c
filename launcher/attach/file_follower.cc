#include "launcher/attach/file_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace ddprun {

FileFollower::FileFollower(const std::filesystem::path& file, std::size_t last_bytes)
    : file_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat info {};
  if (!file_ || ::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    file_.reset();
    return;
  }
  const auto before = info.st_size - static_cast<off_t>(last_bytes);
  if (before <= 0) return;
  ::lseek(file_.get(), before, SEEK_SET);
  in_line_ = true;
}

std::string FileFollower::read_new() {
  if (!file_) return {};
  std::string text(std::size_t{64} * 1024, '\0');
  const auto got = ::read(file_.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (text.empty() || !in_line_) return text;
  const auto end = text.find('\n');
  if (end == std::string::npos) return {};
  in_line_ = false;
  return text.substr(end + 1);
}

}  // namespace ddprun
