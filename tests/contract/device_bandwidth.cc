// Not a test: prints the speed of allreduces on memory of devices, as a JSON object a line.
#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "common/standard_output.h"
#include "worker/cuda/cuda_module.h"
#include "tests/contract/device_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int rounds = 20, warm_up = 3;

// The median duration of an allreduce, as this rank sees it.
double seconds_of(ProcessGroup& group, int device, std::size_t bytes) {
  const auto memory = group.allocate_on(device, bytes);
  const Span span{memory.data(), bytes / sizeof(float), DType::float32, device};
  std::vector<double> seconds;
  for (int round = 0; round < warm_up + rounds; ++round) {
    const auto start = Clock::now();
    group.allreduce(span)->wait();
    if (round >= warm_up) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[rounds / 2];
}

void print(const char* path, int ranks, std::size_t bytes, double seconds) {
  const double rate = static_cast<double>(bytes) / seconds / 1e9;
  const double bus = rate * 2 * (ranks - 1) / ranks;
  write_standard_output(fmt::format(
      R"({{"path": "{}", "ranks": {}, "bytes": {}, "microseconds": {:.1f}, "gb_per_s": {:.3f}, "bus_gb_per_s": {:.3f}}})"
      "\n",
      path, ranks, bytes, 1e6 * seconds, rate, bus));
}

template <class Make, class DeviceOf>
void measure(const char* path, int ranks, const Make& make, const DeviceOf& device_of) {
  auto groups = contract::make_groups(make, ranks, contract::test_timeout);
  const std::size_t largest = CudaModule::get().emulated() ? std::size_t{64} << 10 : std::size_t{256} << 20;
  for (std::size_t bytes = 4096; bytes <= largest; bytes *= 16) {
    double seconds = 0;
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      const double own = seconds_of(group, device_of(group.rank()), bytes);
      if (group.rank() == 0) seconds = own;
    });
    print(path, ranks, bytes, seconds);
  }
}

}  // namespace

TEST_CASE("the bandwidth of allreduces on devices", "[.]") {
  for (const int ranks : contract::nccl_sizes())
    measure("nccl", ranks, contract::make_nccl_rank, [](int rank) { return rank; });
  measure("staged, one device", 2, contract::make_staged_rank, [](int) { return 0; });
}
