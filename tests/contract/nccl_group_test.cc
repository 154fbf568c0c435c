#include "ddprun/worker/comm/nccl/nccl_group.h"

#include "ddprun/worker/comm/forming/backends.h"
#include "tests/contract/group_contract.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("without a GPU, or without NCCL in the build, nccl says so before it meets anybody") {
  if (comm::nccl_available()) SKIP("there is a GPU");
  const auto error = contract::error_of([] { comm::make_group("nccl", {.rank = 0, .size = 2}); });
  INFO(error.what());
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()).find("use gloo") != std::string::npos);
}
