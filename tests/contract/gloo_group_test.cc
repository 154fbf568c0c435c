#include "ddprun/worker/comm/gloo/gloo_group.h"

#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_gloo(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_gloo_group, size, timeout);
}

}  // namespace

DDPRUN_GROUP_CONTRACT("gloo", make_gloo, {1, 2, 3, 4})
