#include "ddprun/worker/comm/nccl/nccl_group.h"

#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/forming/backends.h"
#include "ddprun/worker/comm/gloo/gloo_group.h"
#include "tests/contract/store_groups.h"
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

// The others stand for ranks whose builds have it: they wait for all ranks, as any back end does.
TEST_CASE("a rank whose build or host has no nccl is named at once by those that wait for it") {
  if (comm::nccl_available()) SKIP("there is a GPU");
  std::vector<std::string> heard(3);
  contract::make_groups(
      [&](const GroupOptions& options) -> std::unique_ptr<ProcessGroup> {
        try {
          return options.rank == 1 ? comm::make_group("nccl", options) : comm::make_gloo_group(options);
        } catch (const Error& error) {
          heard[static_cast<std::size_t>(options.rank)] = error.what();
          return nullptr;
        }
      },
      3, std::chrono::hours(1));
  for (const int rank : {0, 2}) {
    const auto& said = heard[static_cast<std::size_t>(rank)];
    CHECK(said.starts_with("rank 1 (pid "));
    CHECK(said.ends_with("): " + heard[1]));
  }
}
