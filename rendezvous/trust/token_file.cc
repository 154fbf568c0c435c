#include "rendezvous/trust/token_file.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/error.h"
#include "common/unique_fd.h"

namespace ddprun {
namespace {

constexpr std::size_t token_digits = 2 * Secret::size;

// Returns why the file is not used; empty if it may be.
std::string refusal(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_text(errno);
  if (!S_ISREG(info.st_mode)) return "it is not a regular file";
  if (info.st_uid != ::geteuid()) return fmt::format("it belongs to another user (uid {})", info.st_uid);
  if ((info.st_mode & 0177) != 0)
    return fmt::format("others may read or change it (its mode is {:o}): chmod 600 it, and make a new token",
                       info.st_mode & 07777U);
  return {};
}

Secret read_digits(int fd, const std::filesystem::path& file) {
  std::array<char, token_digits + 2> bytes{};  // one more than a token and a newline
  std::size_t size = 0;
  while (size < bytes.size()) {
    const auto got = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw make_error(Errc::usage, "token file {}: {}", file.string(), errno_text(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  std::string text(bytes.data(), size);
  ::explicit_bzero(bytes.data(), bytes.size());
  const SecretText owner(text);
  auto view = owner.view();
  if (view.ends_with('\n')) view.remove_suffix(1);
  try {
    return Secret::from_hex(view);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "token file {}: {}; 'openssl rand -hex 32' makes one", file.string(), e.what());
  }
}

UniqueFd open_to_read(const std::filesystem::path& file) {
  return UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

Secret read_from(const UniqueFd& fd, const std::filesystem::path& file) {
  if (const auto reason = refusal(fd.get()); !reason.empty())
    throw make_error(Errc::usage, "token file {}: {}", file.string(), reason);
  return read_digits(fd.get(), file);
}

}  // namespace

Secret read_token_file(const std::filesystem::path& file) {
  const auto fd = open_to_read(file);
  if (!fd) throw make_error(Errc::usage, "token file {}: {}", file.string(), errno_text(errno));
  return read_from(fd, file);
}

std::optional<Secret> find_token_file(const std::filesystem::path& file) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(file.parent_path(), ignored), end; entry != end;
       entry.increment(ignored)) {
    if (entry->path().filename() == file.filename()) break;
  }
  const auto fd = open_to_read(file);
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw make_error(Errc::usage, "token file {}: {}", file.string(), errno_text(errno));
  return read_from(fd, file);
}

// The file is written under another name first, so that a reader never sees a part of it.
TokenFile::TokenFile(std::filesystem::path file, const Secret& token) : file_(std::move(file)) {
  const auto unnamed = file_.string() + fmt::format(".{}", ::getpid());
  const auto fail = [&](int cause) {
    ::unlink(unnamed.c_str());
    throw make_error(Errc::io, "cannot make the token file {}: {}", file_.string(), errno_text(cause));
  };
  const UniqueFd fd(::open(unnamed.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!fd) throw make_error(Errc::io, "cannot make the token file {}: {}", file_.string(), errno_text(errno));
  const auto text = SecretText::hex_of(token);
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::write(fd.get(), text.view().data(), token_digits) != static_cast<ssize_t>(token_digits) ||
      ::write(fd.get(), "\n", 1) != 1)
    fail(errno);
  // link(2) fails where there is such a file, rename(2) would replace it.
  if (::link(unnamed.c_str(), file_.c_str()) != 0) fail(errno);
  ::unlink(unnamed.c_str());
}

void TokenFile::remove() {
  if (!file_.empty()) ::unlink(file_.c_str());
  file_.clear();
}

TokenFile::~TokenFile() {
  remove();
}

}  // namespace ddprun
