#include "worker/trainer/ledger/ledger_file.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "common/io_error.h"

namespace ddprun::trainer {
LedgerFile::LedgerFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_) throw_io_error("open", path_);
  // Text after half a line would not be read.
  char last = '\n';
  const auto size = ::lseek(fd_.get(), 0, SEEK_END);
  if (size > 0 && ::pread(fd_.get(), &last, 1, size - 1) == 1 && last != '\n') write("\n");
}

void LedgerFile::add(const LedgerLine& line) {
  write(to_json(line) + "\n");
}

void LedgerFile::write(const std::string& text) {
  if (::write(fd_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw_io_error("write", path_);
}

void LedgerFile::flush() {
  if (::fsync(fd_.get()) != 0 && errno != EINVAL) throw_io_error("flush", path_);  // EINVAL: a pipe
}

}  // namespace ddprun::trainer
