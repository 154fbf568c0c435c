#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

// A transaction of the kernel's nftables, as messages of netlink(7): the kernel carries out all of them or none. It has
// only what a table needs that drops packets. Encoding only, no I/O.
//
// A value. Threads: not thread-safe. Errors: none.
class NftablesBatch {
 public:
  // The meta data of a packet that says over which kind of interface it comes or goes (NFT_META_IIFTYPE, ...).
  struct Passing {
    std::string_view chain;
    std::uint32_t meta_key = 0;
    std::uint16_t interface_type = 0;  // ARPHRD_...
  };

  NftablesBatch();
  // Adds a table for IPv4 and IPv6. The socket that sends the batch owns it: the kernel removes it with the socket.
  void add_owned_table(const std::string& name);
  // Adds a chain to the table that sees each packet at a hook (NF_INET_...), and drops it unless a rule accepts it.
  void add_dropping_chain(std::string_view name, std::uint32_t hook);
  // Adds a rule that accepts packets of one kind of interface.
  void add_accepting_rule(const Passing& packets);
  // Returns the messages. The kernel has made the changes if it answers without an error up to the acknowledgement of
  // sequence number last().
  std::string finish();
  std::uint32_t last() const { return sequence_; }

 private:
  std::string table_;
  std::string bytes_;
  std::uint32_t sequence_ = 0;
};

}  // namespace ddprun
