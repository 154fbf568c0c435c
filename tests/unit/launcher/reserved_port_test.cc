#include "launcher/agent/reserved_port.h"

#include <algorithm>
#include <arpa/inet.h>
#include <optional>
#include <sys/socket.h>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/tcp_socket.h"
#include "tests/support/accept.h"
#include "tests/support/catch.h"

using namespace ddprun;
using rendezvous::listen_on;
using rendezvous::local_address;

namespace {

// Gets any free port as programs do: binds port 0, with or without SO_REUSEADDR.
UniqueFd bind_any_port(bool reuse) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

}  // namespace

TEST_CASE("a program that asks for any free port never gets a reserved one") {
  const bool reuse = GENERATE(true, false);
  CAPTURE(reuse);
  // There are many reserved ports, so that a client would soon get one if that were possible.
  std::vector<ReservedPort> reserved(300);
  std::vector<bool> taken(65536);
  for (const auto& port : reserved) taken.at(port.port()) = true;
  CHECK(std::count(taken.begin(), taken.end(), true) == 300);
  std::vector<UniqueFd> others;  // they are held, so that each gets another port
  for (int i = 0; i < 600; ++i) {
    others.push_back(bind_any_port(reuse));
    REQUIRE_FALSE(taken.at(local_address(others.back().get()).port));
  }
}

TEST_CASE("a client socket never gets a reserved port as its local port") {
  std::vector<ReservedPort> reserved(300);
  std::vector<bool> taken(65536);
  for (const auto& port : reserved) taken.at(port.port()) = true;
  const auto listener = listen_on("127.0.0.1", 0);
  const auto port = local_address(listener.get()).port;
  std::vector<UniqueFd> connections;
  for (int i = 0; i < 600; ++i) {
    connections.push_back(rendezvous::connect_once("127.0.0.1", port, Deadline::in(std::chrono::seconds(20))));
    REQUIRE_FALSE(taken.at(local_address(connections.back().get()).port));
    testing::accept_next(listener.get());
  }
}

TEST_CASE("the worker can listen on a reserved port, at any address, and keeps it") {
  const std::string host = GENERATE("", "127.0.0.1");
  CAPTURE(host);
  std::optional<ReservedPort> reserved(std::in_place);
  const auto port = reserved->port();
  CHECK_THROWS_AS(rendezvous::connect_once("127.0.0.1", port, Deadline::in(std::chrono::seconds(20))), Error);
  const auto worker = listen_on(host, port);
  CHECK(rendezvous::connect_once("127.0.0.1", port, Deadline::in(std::chrono::seconds(20))));
  CHECK_THROWS_AS(listen_on(host, port), Error);
  reserved.reset();
  CHECK(rendezvous::connect_once("127.0.0.1", port, Deadline::in(std::chrono::seconds(20))));
}
