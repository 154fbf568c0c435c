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

// Nobody would notice otherwise: a root is done once it has sent, whoever listens.
TEST_CASE("checked gloo groups compare every call") {
  const auto make = [](GroupOptions options) {
    options.checked = true;
    options.freeze_bound = std::chrono::milliseconds(0);  // nobody looks at the neighbour
    return comm::make_gloo_group(options);
  };
  for (const int size : {2, 3}) {
    auto groups = contract::make_groups(make, size, contract::patience);
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<float> values(10);
      group.allreduce(span_of(values), ReduceOp::sum)->wait();
      const auto error =
          contract::error_of([&] { group.broadcast(span_of(values), group.rank() == 0 ? 0 : 1)->wait(); });
      contract::expect(error.code() == Errc::mismatch, error.what());
      for (const auto* part :
           {"rank 0", "broadcast of 10 float32 from rank 0", "broadcast of 10 float32 from rank 1"}) {
        contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      }
    });
  }
}

TEST_CASE("checked gloo groups compare the parts of all_to_allv") {
  const auto make = [](GroupOptions options) {
    options.checked = true;
    return comm::make_gloo_group(options);
  };
  auto groups = contract::make_groups(make, 2, contract::patience);
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<float> input(4), output(4);
    const Counts even = {2, 2}, less = group.rank() == 0 ? Counts{2, 1} : Counts{1, 2};
    const auto error = contract::error_of([&] {
      group.all_to_allv(span_of(input), even, {output.data(), 3, DType::float32}, less)->wait();
    });
    contract::expect(error.code() == Errc::mismatch, error.what());
    contract::expect(std::string(error.what()).find("2 elements, and that expects 1") != std::string::npos,
                     error.what());
  });
}

DDPRUN_GROUP_CONTRACT("gloo", make_gloo, {1, 2, 3, 4, 5, 8})
