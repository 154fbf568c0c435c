#include "tests/support/thread_group.h"

#include "worker/comm/backends/local/self_group.h"
#include "tests/contract/group_contract.h"
#include "tests/support/catch.h"

namespace {

ddprun::contract::Groups make_self(int, std::chrono::milliseconds) {
  ddprun::contract::Groups groups;
  groups.push_back(ddprun::comm::make_self_group());
  return groups;
}

}  // namespace

DDPRUN_GROUP_CONTRACT("self", make_self, {1})
DDPRUN_GROUP_CONTRACT("thread", ddprun::testing::make_thread_groups, {1, 2, 3, 4, 5, 8})

TEST_CASE("a recv from any source fails when all other threads have left") {
  auto groups = ddprun::testing::make_thread_groups(2, ddprun::contract::test_timeout);
  groups[1].reset();
  std::vector<float> values(1);
  CHECK_THROWS_WITH(groups[0]->recv(ddprun::span_of(values), ddprun::any_source, 0)->wait(),
                    Catch::StartsWith("every other rank left the group before "));
}
