#include "rendezvous/recovery/standby_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

#include "common/error.h"

namespace ddprun {
namespace {

constexpr std::size_t standard_count = 3;

// A message for sendmsg(2) and recvmsg(2): a text, which outlives it, and room for the standard descriptors.
class Message {
 public:
  explicit Message(std::string& text) : part_{.iov_base = text.data(), .iov_len = text.size()} {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_.data();
    header_.msg_controllen = control_.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  msghdr* get() { return &header_; }
  // Returns null if there are no descriptors.
  cmsghdr* descriptors() { return CMSG_FIRSTHDR(&header_); }

 private:
  iovec part_;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(standard_count * sizeof(int))> control_{};
  msghdr header_{};
};

// Returns the number of bytes of the next message; 0 at the end of file.
std::size_t wait_for_message(int socket) {
  ssize_t size = 0;
  do size = ::recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC);
  while (size < 0 && errno == EINTR);
  // The agent has ended, and had not read this process's report.
  if (size < 0 && errno == ECONNRESET) return 0;
  if (size < 0) throw make_error(Errc::io, "cannot wait at the agent's socket: {}", errno_text(errno));
  return static_cast<std::size_t>(size);
}

std::vector<std::string> split_entries(std::string_view text) {
  std::vector<std::string> entries;
  while (!text.empty()) {
    const auto end = std::min(text.find('\0'), text.size());
    entries.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return entries;
}

}  // namespace

StandbySockets make_standby_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw make_error(Errc::io, "cannot make a socket for a standby process: {}", errno_text(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void report_ready(int socket) {
  const char ready = 1;
  ::send(socket, &ready, sizeof ready, MSG_NOSIGNAL);  // an agent that has ended is noticed by the wait that follows
}

bool take_ready_report(int socket) {
  char ready = 0;
  return ::recv(socket, &ready, sizeof ready, MSG_DONTWAIT) == sizeof ready;
}

bool send_adoption(int socket, std::span<const std::string> environment, const std::array<int, 3>& standard) {
  std::string text;
  for (const auto& entry : environment) text.append(entry).push_back('\0');
  Message message(text);
  auto* const header = message.descriptors();
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof standard);
  std::memcpy(CMSG_DATA(header), standard.data(), sizeof standard);
  return ::sendmsg(socket, message.get(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(text.size());
}

std::optional<Adoption> receive_adoption(int socket) {
  std::string text(wait_for_message(socket), '\0');
  if (text.empty()) return std::nullopt;
  Message message(text);
  if (::recvmsg(socket, message.get(), MSG_CMSG_CLOEXEC) < 0)
    throw make_error(Errc::io, "cannot read from the agent's socket: {}", errno_text(errno));
  const auto* const header = message.descriptors();
  std::array<int, standard_count> descriptors{};
  if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof descriptors))
    throw make_error(Errc::protocol, "the agent has sent no standard descriptors");
  std::memcpy(descriptors.data(), CMSG_DATA(header), sizeof descriptors);
  Adoption adoption{.environment = split_entries(text), .standard = {}};
  for (std::size_t i = 0; i < standard_count; ++i) adoption.standard[i] = UniqueFd(descriptors[i]);
  return adoption;
}

}  // namespace ddprun
