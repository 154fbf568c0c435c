// Every byte that arrives before authentication: the server's decision about a connection, over TLS and by a challenge,
// and the client's side of both. Nobody is admitted without the token, the limit of bytes holds, and the result does
// not depend on how the bytes are split.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "common/error.h"
#include "rendezvous/trust/client_handshake.h"
#include "rendezvous/trust/owner_question.h"
#include "rendezvous/trust/server_handshake.h"

using namespace ddprun;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

const Credentials& credentials(Credentials::Transport transport) {
  // The nonces are fixed, so that a finding can be repeated.
  const auto make = [](Credentials::Transport kind) {
    Secret::Bytes bytes;
    bytes.fill(7);
    return Credentials(Secret(bytes), "job", kind);
  };
  static const Credentials tls = make(Credentials::Transport::tls), clear = make(Credentials::Transport::clear);
  return transport == Credentials::Transport::tls ? tls : clear;
}

// Returns 'o' for open, 'p' for plain, 'r' for refused.
char outcome(const Credentials* known, std::string_view bytes, std::size_t step) {
  SeenHellos seen;
  ServerHandshake server(known, seen);
  auto state = ServerHandshake::State::open;
  for (std::size_t at = 0; at < bytes.size() && state == ServerHandshake::State::open;) {
    const auto size = std::min({step, bytes.size() - at, server.capacity()});
    state = server.feed(bytes.substr(at, size));
    at += size;
    server.take_output();
  }
  require(state != ServerHandshake::State::admitted);
  if (state == ServerHandshake::State::refused) return 'r';
  return state == ServerHandshake::State::plain ? 'p' : 'o';
}

// A client with the token is admitted, in pieces of any size. A byte changed on the way may only prevent that.
void carry(const Credentials& known, std::size_t step, std::uint8_t position, std::uint8_t change) {
  ClientHandshake client(known);
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  std::size_t carried = 0;
  auto state = ServerHandshake::State::open;
  try {
    while (state == ServerHandshake::State::open) {
      auto bytes = client.take_output();
      if (bytes.empty()) return;
      for (auto& byte : bytes)
        if (carried++ == position) byte = static_cast<char>(byte ^ change);
      for (std::size_t at = 0; at < bytes.size() && state == ServerHandshake::State::open; at += step)
        state = server.feed(std::string_view(bytes).substr(at, step));
      if (const auto answer = server.take_output(); !answer.empty()) client.feed(answer);
    }
  } catch (const Error&) {
    require(change != 0);
    return;
  }
  require(state != ServerHandshake::State::refused || change != 0);
  require(change != 0 || (state == ServerHandshake::State::admitted && client.is_complete()));
}

void answer_client(const Credentials& known, std::string_view bytes) {
  ClientHandshake client(known);
  client.take_output();
  try {
    client.feed(bytes);
  } catch (const Error&) {
  }
  require(!client.is_complete());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t step = 1 + data[0] % 16;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const auto transport : {Credentials::Transport::tls, Credentials::Transport::clear}) {
    const auto& known = credentials(transport);
    require(outcome(&known, bytes, bytes.size()) == outcome(&known, bytes, step));
    answer_client(known, bytes);
    if (data[0] < 0xe0) continue;  // whole handshakes take long
    carry(known, step, data[1], 0);
    carry(known, step, data[1], data[size - 1]);
  }
  require(outcome(nullptr, bytes, bytes.size()) != 'o');
  try {
    const auto question = decode_owner_question(bytes);
    require(decode_owner_question(encode(question)).ends.own == question.ends.own);
  } catch (const Error&) {
  }
  return 0;
}
