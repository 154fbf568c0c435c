#include "common/error.h"
#include "rendezvous/store/store_server_thread.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/store_junk.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using ddprun::testing::allocated_bytes;
using ddprun::testing::RawSocket;
using ddprun::testing::StoreJunk;

TEST_CASE("another client is served during ten thousand connections of invalid data") {
  constexpr std::uint32_t seed = 7;
  constexpr int connections = 10'000, messages_each = 10;
  INFO("seed " << seed);
  StoreServerThread server({.host = "127.0.0.1"});
  auto witness = RawSocket::validated(server.port());
  StoreJunk junk(seed);
  std::size_t half_way = 0;
  for (int i = 0; i < connections; ++i) {
    RawSocket socket(server.port());
    std::string bytes = junk.one_in(10) ? junk.noise(junk.below(40)) : encode(ValidateRequest{});
    for (int m = 0; m < messages_each; ++m) bytes += junk.message();
    try {
      socket.send(bytes);
    } catch (const Error&) {  // closed while it was sending
    }
    if (i % 10 == 0) REQUIRE_NOTHROW(witness.settle());
    if (i == connections / 2) half_way = allocated_bytes();
  }
  // The server has seen all of them close once it has served a later connection.
  RawSocket::validated(server.port()).settle();
  witness.settle();
  CHECK(allocated_bytes() < half_way + (4 << 20));
}
