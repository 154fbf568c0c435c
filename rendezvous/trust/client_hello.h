#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_set>

#include "ddprun/rendezvous/trust/secret.h"

// The first message of a TLS connection, judged before TLS begins: at the cost of one hash, a server knows whether the
// client knows the key, and that the message is no copy of an earlier one.
namespace ddprun {

// The key of the codes ("binders") by which a ClientHello proves that its sender knows a pre-shared key (RFC 8446,
// 4.2.11.2). Throws Errc::internal if OpenSSL fails.
Secret binder_key_of(const Secret& pre_shared_key);

// A verdict on the bytes with which a connection begins: a record with a whole ClientHello, as a TlsChannel sends it.
struct HelloVerdict {
  enum class Kind {
    incomplete,  // more bytes are needed
    wrong,       // no such ClientHello, or its sender does not know the key
    right,
  };
  Kind kind = Kind::incomplete;
  std::string_view code{};  // the code of a right one, within the bytes that were passed
};
// A message longer than max_bytes is wrong. Throws Errc::internal if OpenSSL fails.
HelloVerdict judge_client_hello(std::string_view bytes, const Secret& binder_key, std::size_t max_bytes);

// The newest ClientHellos of a server. A client makes a new one for each connection, so one that comes again is a
// replay. It would also fail in the handshake, which costs much more.
//
// A value. Threads: not thread-safe. Errors: none.
class SeenHellos {
 public:
  static constexpr std::size_t limit = 16'384;

  // Returns whether the code is new. REQUIRES: it is the code of a right ClientHello, which nobody else can make.
  bool insert(std::string_view code);

 private:
  std::unordered_set<std::uint64_t> known_;
  std::deque<std::uint64_t> by_age_;
};

}  // namespace ddprun
