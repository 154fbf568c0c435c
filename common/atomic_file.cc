#include "common/atomic_file.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "common/io_error.h"
#include "common/unique_fd.h"

namespace ddprun {
namespace {

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("write", path);
    content.remove_prefix(static_cast<std::size_t>(n));
  }
}

void write_and_sync(const std::filesystem::path& path, std::string_view content) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) throw_io_error("create", path);
  write_all(fd.get(), content, path);
  if (::fsync(fd.get()) != 0) throw_io_error("flush", path);
}

// A FIFO without a reader is an error, not a wait.
void write_to_device(const std::filesystem::path& path, std::string_view content) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd) throw_io_error("open", path);
  write_all(fd.get(), content, path);
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_io_error("open folder", folder);
  if (::fsync(fd.get()) != 0) throw_io_error("flush folder", folder);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::error_code ignored;
  if (std::filesystem::is_other(path, ignored)) return write_to_device(path, content);
  auto temporary = path;
  temporary += ".tmp." + std::to_string(::getpid());
  try {
    write_and_sync(temporary, content);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_io_error("rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

std::string read_whole_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_io_error("open", path);
  std::ostringstream content;
  content << in.rdbuf();
  if (in.bad()) throw_io_error("read", path);
  return std::move(content).str();
}

}  // namespace ddprun
