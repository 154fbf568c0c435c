#include "ddprun/worker/comm/gloo/gloo_group.h"

#include <cstdlib>

#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_gloo(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_gloo_group, size, timeout);
}

}  // namespace

TEST_CASE("a transport that Gloo cannot carry collectives over is refused by name") {
  ::setenv("GLOO_DEVICE_TRANSPORT", "IBVERBS", 1);
  const auto error = contract::error_of([] { comm::make_gloo_transport({.size = 2, .local_address = "127.0.0.1"}); });
  ::unsetenv("GLOO_DEVICE_TRANSPORT");
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()).find("GLOO_DEVICE_TRANSPORT=IBVERBS") != std::string::npos);
}

DDPRUN_GROUP_CONTRACT("gloo", make_gloo, {1, 2, 3, 4, 5, 8})
