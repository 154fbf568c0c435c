#include "worker/checkpoint/file_writer.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "common/io_error.h"

namespace ddprun::checkpoint {
namespace {

constexpr std::size_t written_at_once = std::size_t{1} << 20;
constexpr std::uint64_t window_bytes = std::uint64_t{32} << 20;

// Returns whether an error is that of a disk. Other ones are of a system that does not know the call.
bool is_of_disk(int error) {
  return error == EIO || error == ENOSPC || error == EDQUOT;
}

[[noreturn]] void fail_reading(const char* what, const std::filesystem::path& path) {
  const int cause = errno;
  const bool certainly_missing = cause == ENOENT || cause == ENOTDIR || cause == EISDIR || cause == ELOOP;
  const auto message = fmt::format("cannot {} {}: {}", what, path.string(), errno_text(cause));
  if (certainly_missing) throw Error(Errc::io, message);
  throw InaccessibleFile(message);
}

// Calls consume with each piece of the file, front to back.
template <class Consume>
void read_pieces(const std::filesystem::path& path, Consume&& consume) {
  const auto fd = open_file(path);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  while (true) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_reading("read", path);
    if (n == 0) return;
    consume(std::span<const std::byte>(piece).first(static_cast<std::size_t>(n)));
  }
}

}  // namespace

FileWriter::FileWriter(const std::filesystem::path& path, DiskWatch* watch) : path_(path), watch_(watch) {
  request("create");
  fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd_) throw_io_error("create", path_);
}

void FileWriter::request(const char* what, const std::function<void()>& read) {
  if (watch_)
    watch_->request(fmt::format("{} {}", what, path_.string()), read);
  else if (read)
    read();
}

void FileWriter::write(std::string_view bytes) {
  write(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// Memory that is to be written belongs to a caller who may leave when the disk does not answer, but not while it is
// hashed. What the system makes of memory that is gone is an error of write(), or what a file of no checkpoint has.
void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), written_at_once));
    request("write", [&] { hash_.update(piece); });
    write_piece(piece);
    bytes = bytes.subspan(piece.size());
  }
}

void FileWriter::write_piece(std::span<const std::byte> bytes) {
  written_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  if (written_ - flushed_ >= 2 * window_bytes) flush_window();
}

// Waits until the disk has written an earlier window, and lets it begin the next one: so no request takes longer than
// one of them, not even the last. The system tells an error of the disk once: fsync() does not repeat it.
void FileWriter::flush_window() {
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  request("flush");
  ::sync_file_range(fd_.get(), static_cast<off64_t>(flushed_ + window_bytes), window_bytes, SYNC_FILE_RANGE_WRITE);
  if (::sync_file_range(fd_.get(), static_cast<off64_t>(flushed_), window_bytes, all) != 0 &&
      (is_of_disk(errno) || ::fdatasync(fd_.get()) != 0))
    throw_io_error("flush", path_);
  flushed_ += window_bytes;
}

FileDigest FileWriter::finish() {
  request("flush");
  if (::fsync(fd_.get()) != 0) throw_io_error("flush", path_);
  request("close");
  fd_.reset();
  return {written_, hash_.hex()};
}

UniqueFd open_file(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) fail_reading("open", path);
  return fd;
}

std::string read_file(const std::filesystem::path& path) {
  std::string content;
  read_pieces(path, [&](std::span<const std::byte> piece) {
    content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return content;
}

void check_readable(const std::filesystem::path& path) {
  const auto fd = open_file(path);
  std::byte first{};
  while (::read(fd.get(), &first, 1) < 0)
    if (errno != EINTR) fail_reading("read", path);
}

FileDigest digest_of_file(const std::filesystem::path& path) {
  Sha256 hash;
  FileDigest digest;
  read_pieces(path, [&](std::span<const std::byte> piece) {
    hash.update(piece);
    digest.bytes += piece.size();
  });
  digest.sha256 = hash.hex();
  return digest;
}

}  // namespace ddprun::checkpoint
