#include "rendezvous/trust/socket_owner.h"

#include <chrono>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/trust/owner_question.h"
#include "tests/support/accept.h"
#include "tests/support/as_user.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

constexpr uid_t nobody = 65534;

Deadline soon() {
  return Deadline::in(std::chrono::seconds(20));
}

SocketEnds ends_of(int fd) {
  const auto own = local_address(fd), peer = peer_address(fd);
  return {.own = {own.address, own.port}, .peer = {peer.address, peer.port}};
}

// The kernel reports the user who made the socket.
UniqueFd connected_as(uid_t user, std::uint16_t port) {
  const ddprun::testing::AsUser other(user);
  return connect_once("127.0.0.1", port, soon());
}

}  // namespace

TEST_CASE("the kernel says who made the other end of a connection") {
  const auto host = GENERATE(as<std::string>(), "127.0.0.1", "::1", "");
  if (host == "::1" && ::access("/proc/net/if_inet6", R_OK) != 0) return;
  const auto listener = listen_on(host, 0);
  const auto fd = connect_once(host.empty() ? "127.0.0.1" : host, local_address(listener.get()).port, soon());
  SocketOwners owners;
  const auto owner = owners.find(ends_of(fd.get()));
  REQUIRE(owner);
  CHECK(owner->user == ::geteuid());
  struct stat info {};
  REQUIRE(::fstat(fd.get(), &info) == 0);
  CHECK(owner->inode == info.st_ino);
}

TEST_CASE("the socket of another user is told from one of this user") {
  if (::geteuid() != 0) SKIP("needs root, to become another user");
  const auto listener = listen_on("127.0.0.1", 0);
  const auto port = local_address(listener.get()).port;
  SocketOwners owners;
  for (const uid_t user : {nobody, uid_t{0}}) {
    const auto socket = connected_as(user, port);
    const auto owner = owners.find(ends_of(socket.get()));
    REQUIRE(owner);
    CHECK(owner->user == user);
  }
}

// The kernel reports root as the owner of such a socket.
TEST_CASE("a socket that nobody holds any more has no owner") {
  const auto listener = listen_on("127.0.0.1", 0);
  auto fd = connect_once("127.0.0.1", local_address(listener.get()).port, soon());
  const auto accepted = testing::accept_next(listener.get());
  const auto ends = ends_of(fd.get());
  fd.reset();
  CHECK_FALSE(SocketOwners().find(ends));
}

// The kernel answers with the listener where there is no connection.
TEST_CASE("a listener at the port that a client has elsewhere does not count as the client's socket") {
  const auto listener = listen_on("", 0);
  const auto port = local_address(listener.get()).port;
  SocketOwners owners;
  CHECK_FALSE(owners.find({.own = {"127.0.0.1", port}, .peer = {"127.0.0.1", 9}}));
  CHECK_FALSE(owners.find({.own = {"192.0.2.7", port}, .peer = {"127.0.0.1", 9}}));
}

TEST_CASE("addresses of two kinds, and what is none, are refused") {
  SocketOwners owners;
  CHECK_THROWS_AS(owners.find({.own = {"127.0.0.1", 1}, .peer = {"::1", 1}}), Error);
  CHECK_THROWS_AS(owners.find({.own = {"localhost", 1}, .peer = {"127.0.0.1", 1}}), Error);
}

TEST_CASE("a question about a socket survives its text, and nothing else is one") {
  const OwnerQuestion question{.number = 7, .ends = {.own = {"10.0.0.1", 65535}, .peer = {"::1", 29500}}};
  const auto copy = decode_owner_question(encode(question));
  CHECK(copy.number == 7);
  CHECK(copy.ends.own == question.ends.own);
  CHECK(copy.ends.peer == question.ends.peer);
  for (const auto* text : {"", "7", "7 a 1 b", "7 a 1 b 65536", "-1 a 1 b 2", "7 a 1 b 2 c"}) {
    INFO(text);
    CHECK_THROWS_AS(decode_owner_question(text), Error);
  }
  CHECK_THROWS_AS(decode_owner_question("7 " + std::string(300, 'a') + " 1 b 2"), Error);
}
