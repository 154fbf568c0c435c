#include "rendezvous/trust/token_descriptor.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"

namespace ddprun {
namespace {

constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
constexpr std::string_view mark = "ddprun token 1 ";
constexpr std::string_view tls = "tls   ", clear = "clear ";
constexpr std::size_t digits = 2 * Secret::size;
constexpr std::size_t total = mark.size() + tls.size() + digits;

bool write_all(int fd, std::string_view bytes) {
  return ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// A kernel or a security module may have added more (F_SEAL_EXEC with vm.memfd_noexec).
bool has_seals(int descriptor) {
  const int found = ::fcntl(descriptor, F_GET_SEALS);
  return found >= 0 && (found & seals) == seals;
}

}  // namespace

UniqueFd make_token_descriptor(const Credentials& credentials) {
  UniqueFd fd(::memfd_create("ddprun token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto text = SecretText::hex_of(credentials.token());
  const bool written = fd && write_all(fd.get(), mark) &&
                       write_all(fd.get(), credentials.transport() == Credentials::Transport::tls ? tls : clear) &&
                       write_all(fd.get(), text.view()) && ::fcntl(fd.get(), F_ADD_SEALS, seals) == 0;
  if (!written) throw make_error(Errc::io, "cannot pass the token on to the workers: {}", errno_text(errno));
  return fd;
}

std::shared_ptr<const Credentials> read_token_descriptor(int descriptor, const std::string& job) {
  if (!has_seals(descriptor)) return nullptr;
  std::array<char, total + 1> bytes{};
  const auto got = ::pread(descriptor, bytes.data(), bytes.size(), 0);
  std::string text(bytes.data(), got == static_cast<ssize_t>(total) ? total : 0);
  ::explicit_bzero(bytes.data(), bytes.size());
  const SecretText owner(text);
  const auto view = owner.view();
  if (!view.starts_with(mark)) return nullptr;
  const bool encrypted = view.substr(mark.size()).starts_with(tls);
  return std::make_shared<Credentials>(Secret::from_hex(view.substr(total - digits)), job,
                                       encrypted ? Credentials::Transport::tls : Credentials::Transport::clear);
}

}  // namespace ddprun
