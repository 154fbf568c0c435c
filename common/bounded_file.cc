#include "common/bounded_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/unique_fd.h"

namespace ddprun {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, const std::string& why) {
  throw make_error(Errc::io, "cannot {} {}: {}", what, path.string(), why);
}

bool is_regular(const struct stat& status) {
  return S_ISREG(status.st_mode);
}

// stat(2) first, since opening a device can have effects; the file may be another one by the time it is opened.
UniqueFd open_regular_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail("open", path, errno_text(errno));
  if (!is_regular(status)) fail("read", path, "it is not a regular file");
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) fail("open", path, errno_text(errno));
  if (::fstat(file.get(), &status) != 0 || !is_regular(status)) fail("read", path, "it is not a regular file");
  return file;
}

// Reads up to limit bytes, and sets more to whether the file has further ones.
std::string read_up_to(int file, std::size_t limit, const std::filesystem::path& path, bool& more) {
  std::string content;
  char block[16384];
  for (;;) {
    const auto got = ::read(file, block, sizeof(block));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno_text(errno));
    const auto room = limit - content.size();
    content.append(block, std::min(static_cast<std::size_t>(got), room));
    more = static_cast<std::size_t>(got) > room;
    if (got == 0 || more) return content;
  }
}

std::string size_text(std::size_t bytes) {
  constexpr std::size_t kib = 1024;
  return bytes % (kib * kib) == 0 ? fmt::format("{} MiB", bytes / (kib * kib)) : fmt::format("{} bytes", bytes);
}

std::string read_all(int file, std::size_t limit, const std::filesystem::path& path) {
  bool more = false;
  auto content = read_up_to(file, limit, path, more);
  if (more) fail("read", path, "it has more than " + size_text(limit));
  return content;
}

}  // namespace

std::string read_regular_file(const std::filesystem::path& path, std::size_t limit) {
  return read_all(open_regular_file(path).get(), limit, path);
}

std::string read_front_of_file(const std::filesystem::path& path, std::size_t limit) {
  try {
    bool more = false;
    return read_up_to(open_regular_file(path).get(), limit, path, more);
  } catch (const Error&) {
    return {};
  }
}

std::string read_end_of_file(const std::filesystem::path& path, std::size_t limit) {
  try {
    const auto file = open_regular_file(path);
    const auto size = ::lseek(file.get(), 0, SEEK_END);
    const auto begin = std::max<off_t>(0, size - static_cast<off_t>(limit));
    bool more = false;
    return ::lseek(file.get(), begin, SEEK_SET) == begin ? read_up_to(file.get(), limit, path, more) : std::string();
  } catch (const Error&) {
    return {};
  }
}

std::string read_named_file(const std::filesystem::path& path, std::size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (!file) fail("open", path, errno_text(errno));
  return read_all(file.get(), limit, path);
}

}  // namespace ddprun
