#include "rendezvous/trust/server_handshake.h"

#include <utility>

#include "rendezvous/trust/authentication_error.h"

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
  try {
    state_ = std::exchange(began_, true) ? go_on(received) : begin(received);
  } catch (const AuthenticationError& e) {
    state_ = refuse(e.what());
  }
  if (state_ == State::open && received_ >= max_bytes)
    state_ = refuse(fmt::format("{} bytes without authentication", received_));
  return state_;
}

ServerHandshake::State ServerHandshake::refuse(std::string reason) {
  reason_ = std::move(reason);
  return State::refused;
}

ServerHandshake::State ServerHandshake::begin(std::string_view received) {
  using Transport = Credentials::Transport;
  const char first = received.front();
  if (first == plain_byte) {
    rest_ = received;
    return State::plain;
  }
  if (first != tls_byte && first != challenge_byte)
    return refuse(
        fmt::format("the first byte is {}, neither VALIDATE nor TLS (not a store client, or PyTorch before 2.2, which "
                    "needs ddprun's --no_agent_store)",
                    static_cast<int>(static_cast<unsigned char>(first))));
  if (!credentials_) return refuse("it has a token, and this server has none");
  const auto transport = first == tls_byte ? Transport::tls : Transport::clear;
  if (transport != credentials_->transport())
    return refuse(transport == Transport::tls ? "it uses TLS, and this server has tls=off"
                                              : "it has tls=off, and this server uses TLS");
  if (transport == Transport::clear) challenge_.emplace(*credentials_, random_nonce());
  return go_on(received);
}

ServerHandshake::State ServerHandshake::go_on(std::string_view received) {
  if (!challenge_) return channel_ ? go_on_with_tls(received) : judge_hello(received);
  if (!challenge_->feed(received, output_)) return State::open;
  rest_ = challenge_->rest();
  return State::admitted;
}

ServerHandshake::State ServerHandshake::go_on_with_tls(std::string_view received) {
  channel_->feed(received);
  return channel_->shake_hands() ? State::admitted : State::open;
}

ServerHandshake::State ServerHandshake::judge_hello(std::string_view received) {
  hello_ += received;
  const auto verdict = credentials_->hello_judge().judge(hello_, max_bytes);
  if (verdict.kind == HelloVerdict::Kind::incomplete) return State::open;
  if (verdict.kind == HelloVerdict::Kind::wrong) {
    output_ = alert;
    return refuse("the client does not know the token of the job");
  }
  if (!seen_.insert(verdict.code)) return refuse("it repeats the first message of an earlier connection");
  channel_ = std::make_unique<TlsChannel>(credentials_->tls_server());
  return go_on_with_tls(std::exchange(hello_, {}));
}

std::string ServerHandshake::take_output() {
  return channel_ ? channel_->take_output() : std::exchange(output_, {});
}

}  // namespace ddprun
