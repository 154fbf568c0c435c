#include "rendezvous/trust/socket_owner.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "common/error.h"
#include "common/host_port.h"

namespace ddprun {
namespace {

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

// "fe80::1%3" has the number of its interface after the address.
std::uint32_t split_interface(std::string& address) {
  const auto percent = address.find('%');
  if (percent == std::string::npos) return 0;
  const auto number = static_cast<std::uint32_t>(std::strtoul(address.c_str() + percent + 1, nullptr, 10));
  address.erase(percent);
  return number;
}

bool parse(int family, const std::string& text, __be32* address) {
  return ::inet_pton(family, text.c_str(), address) == 1;
}

inet_diag_req_v2 request_for(const SocketEnds& ends) {
  inet_diag_req_v2 request{};
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = ~0U;
  auto own = ends.own.address, peer = ends.peer.address;
  request.id.idiag_if = split_interface(own);
  split_interface(peer);
  const int family = own.find(':') == std::string::npos ? AF_INET : AF_INET6;
  request.sdiag_family = static_cast<__u8>(family);
  if (!parse(family, own, request.id.idiag_src) || !parse(family, peer, request.id.idiag_dst))
    throw make_error(Errc::usage, "{} and {} are not numeric addresses of one kind", own, peer);
  request.id.idiag_sport = htons(ends.own.port);
  request.id.idiag_dport = htons(ends.peer.port);
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return request;
}

// The kernel falls back to a listener of the port, whose owner is another matter.
bool is_about(const inet_diag_msg& answer, const inet_diag_req_v2& request) {
  const bool connected = answer.idiag_state != TCP_LISTEN && answer.idiag_state != TCP_CLOSE;
  return connected && answer.id.idiag_sport == request.id.idiag_sport &&
         answer.id.idiag_dport == request.id.idiag_dport;
}

}  // namespace

SocketOwners::SocketOwners() : netlink_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
  if (!netlink_) throw make_error(Errc::unsupported, "NETLINK_SOCK_DIAG: {}", errno_text(errno));
  // A query for port 1, which nobody uses, shows whether the module for TCP is there.
  find({.own = {"127.0.0.1", 1}, .peer = {"127.0.0.1", 1}});
}

std::optional<SocketOwner> SocketOwners::find(const SocketEnds& ends) {
  Question question{};
  question.header = {.nlmsg_len = sizeof question,
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST,
                     .nlmsg_seq = ++sequence_,
                     .nlmsg_pid = 0};
  question.request = request_for(ends);
  if (::send(netlink_.get(), &question, sizeof question, 0) < 0)
    throw make_error(Errc::io, "NETLINK_SOCK_DIAG: {}", errno_text(errno));
  alignas(nlmsghdr) char answer[4096];
  for (;;) {
    const auto got = ::recv(netlink_.get(), answer, sizeof answer, 0);
    if (got < 0 && errno == EINTR) continue;
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer);
    if (got < 0 || !NLMSG_OK(header, static_cast<std::size_t>(got)))
      throw make_error(Errc::io, "NETLINK_SOCK_DIAG: {}", got < 0 ? errno_text(errno) : "a short answer");
    if (header->nlmsg_seq != sequence_) continue;
    if (header->nlmsg_type == NLMSG_ERROR) {
      const int cause = -static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
      if (cause == ENOENT) return std::nullopt;
      throw make_error(cause == EOPNOTSUPP || cause == EPERM ? Errc::unsupported : Errc::io, "NETLINK_SOCK_DIAG: {}",
                       errno_text(cause));
    }
    const auto& message = *static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    // A socket without an inode is held by nobody, and the kernel reports root as its owner.
    if (!is_about(message, question.request) || message.idiag_inode == 0) return std::nullopt;
    return SocketOwner{.user = message.idiag_uid, .inode = message.idiag_inode};
  }
}

}  // namespace ddprun
