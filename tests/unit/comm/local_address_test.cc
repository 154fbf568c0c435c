#include "worker/comm/bootstrap/local_address.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

const std::vector<NetworkInterface> interfaces = {{"lo", true, "127.0.0.1"},
                                                  {"eth0", false, "10.0.0.5"},
                                                  {"eth1", true, ""},
                                                  {"ib0", true, "192.168.1.5"},
                                                  {"ib1", true, "192.168.2.5"}};

}  // namespace

TEST_CASE("the first interface of a list is chosen that exists, is up and has an address") {
  CHECK(choose_address("ib1", interfaces) == "192.168.2.5");
  CHECK(choose_address("ib1,ib0", interfaces) == "192.168.2.5");
  CHECK(choose_address("bond0,eth0,eth1,ib0,ib1", interfaces) == "192.168.1.5");
}

TEST_CASE("if no interface of a list fits, the error lists those of this host") {
  for (const auto* names : {"ib7", "bond0,eth0", "eth1,ib", ""}) {
    try {
      choose_address(names, interfaces);
      FAIL(names);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::usage);
      const std::string text = error.what();
      CHECK(text.starts_with(names));
      CHECK(text.ends_with(
          "there are lo (127.0.0.1), eth0 (down), eth1 (no address), ib0 (192.168.1.5), ib1 (192.168.2.5)"));
    }
  }
}

TEST_CASE("an address is used as it is, a name as an interface of this host") {
  CHECK(numeric_address("10.1.2.3") == "10.1.2.3");
  CHECK(numeric_address("fd00::7") == "fd00::7");
  CHECK(numeric_address("lo") == "127.0.0.1");
  CHECK(numeric_address("no-such-interface,lo") == "127.0.0.1");
}

TEST_CASE("each address of this host is recognised") {
  CHECK(is_this_host("localhost", 29500));
  CHECK(is_this_host("127.0.0.1", 29500));
  for (const auto& each : network_interfaces())
    if (each.up && !each.address.empty()) CHECK(is_this_host(each.address, 29500));
  CHECK_FALSE(is_this_host("192.0.2.77", 29500));  // reserved for documentation
}
