#include "ddprun/rendezvous/trust/server_handshake.h"

#include <utility>

#include "ddprun/rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

constexpr char tls_byte = '\x16';  // the type of a record with a ClientHello
// A record with the fatal alert decrypt_error (RFC 8446, 6): what OpenSSL would answer.
constexpr std::string_view alert("\x15\x03\x03\x00\x02\x02\x33", 7);
constexpr char plain_byte = '\x00';  // VALIDATE, with which every store client begins

}  // namespace

ServerHandshake::State ServerHandshake::feed(std::string_view received) {
  if (received.empty()) return state_;
  received_ += received.size();
  if (!std::exchange(began_, true)) state_ = begin(received.front());
  if (state_ == State::plain) {
    rest_ += received;
  } else if (tls_) {
    state_ = go_on_with_tls(received);
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
  tls_ = transport == Transport::tls;
  if (!tls_) challenge_.emplace(*credentials_, random_nonce());
  return State::open;
}

ServerHandshake::State ServerHandshake::go_on_with_tls(std::string_view received) {
  if (channel_) {
    channel_->feed(received);
  } else {
    hello_ += received;
    judge_hello();
  }
  return channel_ && channel_->shake_hands() ? State::admitted : State::open;
}

void ServerHandshake::judge_hello() {
  const auto verdict = judge_client_hello(hello_, credentials_->binder_key(), max_bytes);
  if (verdict.kind == HelloVerdict::Kind::incomplete) return;
  if (verdict.kind == HelloVerdict::Kind::wrong) {
    output_ = alert;
    throw AuthenticationError("the client does not know the token of the job");
  }
  if (!seen_.insert(verdict.code)) throw AuthenticationError("it repeats the first message of an earlier connection");
  channel_ = std::make_unique<TlsChannel>(credentials_->tls_server());
  channel_->feed(std::exchange(hello_, {}));
}

std::string ServerHandshake::take_output() {
  return channel_ ? channel_->take_output() : std::exchange(output_, {});
}

}  // namespace ddprun
