#include "ddprun/rendezvous/trust/server_handshake.h"

#include <utility>

#include "ddprun/rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

constexpr char tls_byte = '\x16';    // the type of a record with a ClientHello
constexpr char plain_byte = '\x00';  // VALIDATE, with which every store client begins

}  // namespace

ServerHandshake::State ServerHandshake::feed(std::string_view received) {
  if (received.empty()) return state_;
  received_ += received.size();
  if (!std::exchange(began_, true)) state_ = begin(received.front());
  if (state_ == State::plain) {
    rest_ += received;
  } else if (channel_) {
    channel_->feed(received);
    if (channel_->shake_hands()) state_ = State::admitted;
  } else if (challenge_->feed(received, output_)) {
    rest_ = challenge_->rest();
    state_ = State::admitted;
  }
  if (state_ == State::open && received_ >= max_bytes)
    throw AuthenticationError(fmt::format("{} bytes without authentication", received_));
  return state_;
}

ServerHandshake::State ServerHandshake::begin(char first) {
  using Transport = Credentials::Transport;
  if (first == plain_byte) return State::plain;
  if (first != tls_byte && first != challenge_byte)
    throw AuthenticationError(
        fmt::format("the first byte is {}, neither VALIDATE nor TLS (not a store client, or PyTorch before 2.2, which "
                    "needs ddprun's --no_agent_store)",
                    static_cast<int>(static_cast<unsigned char>(first))));
  if (!credentials_) throw AuthenticationError("it has a token, and this server has none");
  const auto transport = first == tls_byte ? Transport::tls : Transport::clear;
  if (transport != credentials_->transport())
    throw AuthenticationError(transport == Transport::tls ? "it uses TLS, and this server has tls=off"
                                                          : "it has tls=off, and this server uses TLS");
  if (transport == Transport::tls)
    channel_ = std::make_unique<TlsChannel>(credentials_->tls_server());
  else
    challenge_.emplace(*credentials_, random_nonce());
  return State::open;
}

std::string ServerHandshake::take_output() {
  return channel_ ? channel_->take_output() : std::exchange(output_, {});
}

}  // namespace ddprun
