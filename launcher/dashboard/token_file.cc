#include "launcher/dashboard/token_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/random.h"
#include "common/unique_fd.h"

namespace ddprun::dashboard {
namespace {

constexpr std::size_t shortest = 16;
constexpr std::size_t longest = 128;

// Fails if the file exists, also if another agent makes it at this moment.
UniqueFd create(const std::filesystem::path& file) {
  return UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

void check_is_private(int descriptor, const std::filesystem::path& file) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0)
    throw make_error(Errc::io, "cannot examine {}: {}", file.string(), errno_text(errno));
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    throw make_error(Errc::usage, "--dashboard_token_file = {}: it has to be a file of this user with mode 0600",
                     file.string());
}

}  // namespace

std::string token_in(const std::filesystem::path& file) {
  if (const auto made = create(file)) {
    const auto token = random_hex(shortest) + "\n";
    if (::write(made.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size()))
      throw make_error(Errc::io, "cannot write {}: {}", file.string(), errno_text(errno));
  } else if (errno != EEXIST) {
    throw make_error(Errc::io, "cannot create {}: {}", file.string(), errno_text(errno));
  }
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened) throw make_error(Errc::io, "cannot open {}: {}", file.string(), errno_text(errno));
  check_is_private(opened.get(), file);
  char text[longest + 2];
  const auto size = ::read(opened.get(), text, sizeof(text));
  std::string token(text, static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  if (token.ends_with('\n')) token.pop_back();
  const bool plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  if (token.size() < shortest || token.size() > longest || !plain)
    throw make_error(Errc::usage, "--dashboard_token_file = {}: expected {} to {} letters and digits", file.string(),
                     shortest, longest);
  return token;
}

}  // namespace ddprun::dashboard
