// Every byte that arrives before authentication: the server's decision about a connection, over TLS and by a challenge,
// and the client's side of both. Nobody is admitted without the token, the limit of bytes holds, and the result does
// not depend on how the bytes are split.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/trust/client_handshake.h"
#include "ddprun/rendezvous/trust/owner_question.h"
#include "ddprun/rendezvous/trust/server_handshake.h"

using namespace ddprun;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

const Credentials& credentials(Credentials::Transport transport) {
  const auto make = [](Credentials::Transport kind) { return Credentials(Secret::random(), "job", kind); };
  static const Credentials tls = make(Credentials::Transport::tls), clear = make(Credentials::Transport::clear);
  return transport == Credentials::Transport::tls ? tls : clear;
}

// 'o' open, 'p' plain, 'r' refused.
char outcome(const Credentials* known, std::string_view bytes, std::size_t step) {
  ServerHandshake server(known);
  auto state = ServerHandshake::State::open;
  try {
    for (std::size_t at = 0; at < bytes.size() && state == ServerHandshake::State::open;) {
      const auto size = std::min({step, bytes.size() - at, server.capacity()});
      state = server.feed(bytes.substr(at, size));
      at += size;
      server.take_output();
    }
  } catch (const Error&) {
    server.take_output();
    return 'r';
  }
  require(state != ServerHandshake::State::admitted);
  return state == ServerHandshake::State::plain ? 'p' : 'o';
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
  }
  require(outcome(nullptr, bytes, bytes.size()) != 'o');
  try {
    const auto question = decode_owner_question(bytes);
    require(decode_owner_question(encode(question)).ends.own == question.ends.own);
  } catch (const Error&) {
  }
  return 0;
}
