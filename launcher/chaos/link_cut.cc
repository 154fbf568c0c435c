#include "launcher/chaos/link_cut.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <linux/if_arp.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "common/error.h"
#include "common/random.h"
#include "launcher/chaos/nftables_batch.h"

namespace ddprun {
namespace {

// Returns an errno: 0 if the file is there, ENOENT if it is known not to be.
int look_for(const char* path) {
  return ::access(path, F_OK) == 0 ? 0 : errno;
}

// The settings of the machine's packet processing are visible only in its initial network namespace, those of a
// namespace in each. This holds in containers, too, whose processes do not see the machine's.
void require_own_namespace() {
  if (look_for("/proc/sys/net/core/somaxconn") == 0 && look_for("/proc/sys/net/core/netdev_budget") == ENOENT) return;
  throw make_error(Errc::usage,
                   "--chaos: cut needs a network namespace of its own, but this node is in the machine's, whose links "
                   "are never cut: run it in a container, or by ip netns exec");
}

[[noreturn]] void refuse(int error_number) {
  if (error_number == EPERM || error_number == EACCES)
    throw make_error(Errc::usage,
                     "--chaos: cut needs the capability CAP_NET_ADMIN in its network namespace: run ddprun as root of "
                     "the namespace, in a container with --cap-add=NET_ADMIN");
  if (error_number == ENOENT || error_number == EOPNOTSUPP || error_number == EPROTONOSUPPORT || error_number == EINVAL)
    throw make_error(Errc::usage,
                     "--chaos: cut needs a kernel with nftables and tables that have an owner, Linux 5.12 or newer: {}",
                     errno_text(error_number));
  throw make_error(Errc::io, "--chaos: the network links cannot be cut: {}", errno_text(error_number));
}

// Returns the error in an answer of the kernel, 0 for the acknowledgement of the last message; -1 for other answers.
int error_in(const nlmsghdr& head, std::uint32_t last) {
  if (head.nlmsg_type != NLMSG_ERROR || head.nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) return -1;
  nlmsgerr answer;
  std::memcpy(&answer, NLMSG_DATA(&head), sizeof answer);
  if (answer.error != 0) return -answer.error;
  return answer.msg.nlmsg_seq == last ? 0 : -1;
}

// The kernel has answered each message when send(2) returns.
int read_answers(int socket, std::uint32_t last) {
  alignas(nlmsghdr) std::array<char, 8192> buffer;
  for (;;) {
    const auto size = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) return errno;
    const auto* head = reinterpret_cast<const nlmsghdr*>(buffer.data());
    for (auto left = static_cast<std::size_t>(size); NLMSG_OK(head, left); head = NLMSG_NEXT(head, left))
      if (const int error = error_in(*head, last); error >= 0) return error;
  }
}

UniqueFd execute(NftablesBatch& batch) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket) refuse(errno);
  const auto messages = batch.finish();
  if (::send(socket.get(), messages.data(), messages.size(), 0) < 0) refuse(errno);
  if (const int error = read_answers(socket.get(), batch.last()); error != 0) refuse(error);
  return socket;
}

// Several agents may be in one namespace, each with tables of its own.
std::string new_table_name() {
  return "ddprun_cut_" + random_hex(8);
}

UniqueFd drop_packets() {
  require_own_namespace();
  NftablesBatch batch;
  batch.add_owned_table(new_table_name());
  batch.add_dropping_chain("received", NF_INET_PRE_ROUTING);
  batch.add_accepting_rule({.chain = "received", .meta_key = NFT_META_IIFTYPE, .interface_type = ARPHRD_LOOPBACK});
  batch.add_dropping_chain("sent", NF_INET_LOCAL_OUT);
  batch.add_accepting_rule({.chain = "sent", .meta_key = NFT_META_OIFTYPE, .interface_type = ARPHRD_LOOPBACK});
  return execute(batch);
}

}  // namespace

LinkCut::LinkCut() : table_(drop_packets()) {}

// An empty table drops nothing.
void check_links_can_be_cut() {
  require_own_namespace();
  NftablesBatch batch;
  batch.add_owned_table(new_table_name());
  execute(batch);
}

}  // namespace ddprun
