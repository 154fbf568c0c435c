#include "rendezvous/trust/client_handshake.h"

#include <utility>

namespace ddprun {

ClientHandshake::ClientHandshake(const Credentials& credentials) {
  if (credentials.transport() == Credentials::Transport::clear) {
    output_ = challenge_.emplace(credentials, random_nonce()).hello();
    return;
  }
  channel_ = std::make_unique<TlsChannel>(credentials.tls_client());
  channel_->shake_hands();
}

void ClientHandshake::feed(std::string_view received) {
  if (channel_) {
    channel_->feed(received);
    complete_ = channel_->shake_hands();
  } else if (auto proof = challenge_->feed(received)) {
    output_ += *proof;
    complete_ = true;
  }
}

std::string ClientHandshake::take_output() {
  return channel_ ? channel_->take_output() : std::exchange(output_, {});
}

}  // namespace ddprun
