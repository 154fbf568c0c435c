#include "rendezvous/store/local_socket.h"

#include "common/error.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

TEST_CASE("the variable of a store's socket is for workers with the same MASTER_PORT") {
  const auto value = store_socket_value("/tmp/a:b.sock", 29'511);
  CHECK(store_socket_path(value, 29'511) == "/tmp/a:b.sock");
  CHECK(store_socket_path(value, 2951).empty());
  CHECK(store_socket_path(value, 29'512).empty());
  CHECK(store_socket_path("", 29'511).empty());
  CHECK(store_socket_path("/tmp/a.sock", 29'511).empty());
}

TEST_CASE("a store whose agent's socket is not there is reached at its address") {
  const StoreServerThread server({.host = "127.0.0.1"});
  const auto soon = Deadline::in(std::chrono::seconds(20));
  const auto absent = GENERATE(as<std::string>(), "/nonexistent/agent.sock", "/proc/self/fd", std::string(200, 'x'));
  CAPTURE(absent);
  CHECK_THROWS_AS(connect_local(absent, server.port()), Error);
  TcpStore store({.host = "127.0.0.1", .port = server.port(), .local_socket = absent}, soon);
  CHECK(store.add("key", 1, soon) == 1);
}
