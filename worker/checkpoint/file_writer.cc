#include "ddprun/worker/checkpoint/file_writer.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "ddprun/common/error.h"

namespace ddprun::checkpoint {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw make_error(Errc::io, "cannot {} {}: {}", what, path.string(), errno_text(errno));
}

}  // namespace

FileWriter::FileWriter(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (!fd_) fail("create", path_);
}

void FileWriter::write(std::string_view bytes) {
  write(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void FileWriter::write(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  written_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

FileDigest FileWriter::finish() {
  if (::fsync(fd_.get()) != 0) fail("flush", path_);
  fd_.reset();
  return {written_, hash_.hex()};
}

FileDigest digest_of_file(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) fail("open", path);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  Sha256 hash;
  FileDigest digest;
  while (true) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path);
    if (n == 0) break;
    hash.update(std::span(piece).first(static_cast<std::size_t>(n)));
    digest.bytes += static_cast<std::uint64_t>(n);
  }
  digest.sha256 = hash.hex();
  return digest;
}

}  // namespace ddprun::checkpoint
