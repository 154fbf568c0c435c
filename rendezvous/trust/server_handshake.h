#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/trust/challenge.h"
#include "rendezvous/trust/client_hello.h"
#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun {

// A server's decision about a connection from its first bytes: TLS, a challenge, or a plain store client, for which the
// owner of its socket decides. One port serves them all: their first bytes differ. It sees every byte that arrives
// before authentication, at most max_bytes of them, and no allocation depends on a number among them. TLS begins once
// the first message has proved that the client knows the key.
//
// Ownership: borrows the credentials, which must outlive the channel, too, and the server's SeenHellos. Threads: one at
// a time. Errors: feed() returns refused, and reason() says why the connection has to be closed; no exception, which
// would cost more than the decision. take_output() may still be called once. feed() throws Errc::internal if OpenSSL
// fails.
class ServerHandshake {
 public:
  static constexpr std::size_t max_bytes = 512;
  enum class State {
    open,      // more bytes are needed
    plain,     // a store client that has no token: rest() has its bytes
    admitted,  // it has proved that it knows the token
    refused,
  };

  // credentials is null for a server that admits only plain clients.
  ServerHandshake(const Credentials* credentials, SeenHellos& seen) : credentials_(credentials), seen_(seen) {}

  // The number of bytes that may still be fed.
  std::size_t capacity() const { return max_bytes - received_; }
  State feed(std::string_view received);
  std::string take_output();
  // Returns whether the first message of TLS has proved this; the state is open until the handshake is complete.
  bool knows_key() const { return channel_ != nullptr; }
  // REQUIRES: refused.
  const std::string& reason() const { return reason_; }
  // Returns the bytes that follow the handshake, not encrypted. REQUIRES: plain, or admitted.
  std::string take_rest() { return std::move(rest_); }
  // Returns null if the connection is clear text. REQUIRES: admitted.
  std::unique_ptr<TlsChannel> take_channel() { return std::move(channel_); }

 private:
  State begin(std::string_view received);
  State go_on(std::string_view received);
  State go_on_with_tls(std::string_view received);
  State judge_hello(std::string_view received);
  State refuse(std::string reason);

  const Credentials* credentials_;
  SeenHellos& seen_;
  std::size_t received_ = 0;
  State state_ = State::open;
  bool began_ = false;
  std::string hello_;  // the first message of TLS, until it is judged
  std::unique_ptr<TlsChannel> channel_;
  std::optional<ChallengeServer> challenge_;
  std::string output_, rest_, reason_;
};

}  // namespace ddprun
