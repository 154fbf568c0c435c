#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_set>

#include "rendezvous/trust/mac_key.h"
#include "rendezvous/trust/secret.h"

// The first message of a TLS connection, judged before TLS begins: at the cost of one hash, a server knows whether the
// client knows the key, and that the message is no copy of an earlier one.
namespace ddprun {

// A verdict on the bytes with which a connection begins: a record with a whole ClientHello, as a TlsChannel sends it.
// The bytes after that record do not matter: a server cannot tell whether they were sent before its answer.
struct HelloVerdict {
  enum class Kind {
    incomplete,  // more bytes are needed
    wrong,       // no such ClientHello, or its sender does not know the key
    right,
  };
  Kind kind = Kind::incomplete;
  std::string_view code{};  // the code of a right one, within the bytes that were passed
};

// Judges the ClientHellos of those who should know a pre-shared key, by the codes ("binders") with which they prove it
// (RFC 8446, 4.2.11.2). A flood of strangers costs a server mostly this: the algorithms are looked up and the key is
// prepared once.
//
// Ownership: owns the prepared key. Threads: any. Errors: both functions throw
// Errc::internal if OpenSSL fails.
class HelloJudge {
 public:
  explicit HelloJudge(const Secret& pre_shared_key);

  // A message longer than max_bytes is wrong.
  HelloVerdict judge(std::string_view bytes, std::size_t max_bytes) const;

 private:
  // Returns the code of a right ClientHello; empty for any other.
  std::string_view right_code(std::string_view message) const;

  const Sha256Algorithm sha256_;
  const MacKey binder_key_;
};

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
