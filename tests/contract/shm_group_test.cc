#include "ddprun/worker/comm/shm/shm_group.h"

#include "ddprun/worker/comm/auto_group.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_shm(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_shm_group, size, timeout);
}

}  // namespace

TEST_CASE("auto takes shared memory where ranks can share it") {
  const auto groups = contract::make_groups(comm::make_auto_group, 2, contract::patience);
  CHECK(groups[0]->backend() == "shm");
  CHECK(groups[1]->backend() == "shm");
}

DDPRUN_GROUP_CONTRACT("shm", make_shm, {1, 2, 3, 4, 5, 8})
