#include "ddprun/worker/comm/nccl/nccl_group.h"

#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/forming/backends.h"
#include "tests/contract/group_contract.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("without a GPU, or without NCCL in the build, nccl says so and waits for nobody") {
  if (comm::nccl_available()) SKIP("there is a GPU");
  const auto connect = [] { return std::make_shared<MemoryStore>(); };
  const auto error =
      contract::error_of([&] { comm::make_group("nccl", {.rank = 0, .size = 2, .connect_store = connect}); });
  INFO(error.what());
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()).find("use gloo") != std::string::npos);
}
