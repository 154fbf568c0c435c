#include "rendezvous/membership/node_address.h"

#include "tests/support/catch.h"

using namespace ddprun;
using Addresses = std::vector<std::string>;

TEST_CASE("a node is dialled at its session's peer address, unless it declares another") {
  CHECK(dialable_addresses({{"", {"10.0.0.7", "10.0.0.1"}}, {"ib0.example", {"10.0.0.8", "10.0.0.1"}}}) ==
        Addresses{"10.0.0.7", "ib0.example"});
}

TEST_CASE("a node on the server's host gets the address at which others reached the server") {
  CHECK(dialable_addresses({{"", {"127.0.0.1", "127.0.0.1"}}, {"", {"::ffff:10.0.0.8", "::ffff:10.0.0.1"}}}) ==
        Addresses{"10.0.0.1", "10.0.0.8"});
  CHECK(dialable_addresses({{"", {"::1", "::1"}}, {"", {"fd00::8", "fd00::1"}}}) == Addresses{"fd00::1", "fd00::8"});
}

TEST_CASE("if all nodes are on one host they dial loopback addresses") {
  CHECK(dialable_addresses({{"", {"127.0.0.1", "127.0.0.1"}}, {"", {"::1", "::1"}}}) == Addresses{"127.0.0.1", "::1"});
}
