#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/trust/challenge.h"
#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun {

// The client's side of the authentication of a connection, over TLS or in clear text as the credentials say; bytes in
// and out. The caller sends take_output(), feeds what it receives and sends again, until is_complete().
//
// Ownership: borrows the credentials, which must outlive the channel, too. Threads: one at a time. Errors: the
// constructor and feed() throw AuthenticationError, Errc::io and Errc::internal.
class ClientHandshake {
 public:
  explicit ClientHandshake(const Credentials& credentials);

  void feed(std::string_view received);
  std::string take_output();
  bool is_complete() const { return complete_; }
  // Returns the channel that encrypts the connection from now on; null if it is clear text. REQUIRES: is_complete().
  std::unique_ptr<TlsChannel> take_channel() { return std::move(channel_); }

 private:
  std::unique_ptr<TlsChannel> channel_;
  std::optional<ChallengeClient> challenge_;
  std::string output_;
  bool complete_ = false;
};

}  // namespace ddprun
