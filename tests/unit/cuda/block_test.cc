#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/unit/cuda/arrays.h"
#include "tests/unit/cuda/kernels.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::testing;

TEST_CASE("every thread of a grid runs once, whatever its shape") {
  DeviceContext& device = context_of(0);
  const auto [blocks, threads] =
      GENERATE(std::pair(1u, 1u), std::pair(3u, 33u), std::pair(7u, 256u), std::pair(2u, 1024u));
  const Scratch ids(device.memory, 5000 * sizeof(std::int64_t));
  number_threads(device, ids.data<std::int64_t>(), 5000, blocks, threads);
  std::vector<std::int64_t> expected(5000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(to_host<std::int64_t>(device, ids) == expected);
}

TEST_CASE("threads that wait at barriers see what the others wrote") {
  DeviceContext& device = context_of(0);
  std::vector<float> x(6 * 64);
  std::iota(x.begin(), x.end(), 0.0f);
  const Scratch input = to_device(device, x);
  const Scratch sums(device.memory, 6 * sizeof(float));
  sum_blocks(device, input.data<float>(), sums.data<float>(), 6, 64);
  std::vector<float> expected;
  for (int block = 0; block < 6; ++block)
    expected.push_back(std::accumulate(x.begin() + block * 64, x.begin() + (block + 1) * 64, 0.0f));
  CHECK(to_host<float>(device, sums) == expected);
}

TEST_CASE("lanes of a warp exchange values, each warp for itself") {
  DeviceContext& device = context_of(0);
  std::vector<int> x(96);
  std::iota(x.begin(), x.end(), 0);
  const Scratch input = to_device(device, x);
  const Scratch sums(device.memory, 96 * sizeof(int));
  sum_warps(device, input.data<int>(), sums.data<int>(), 96);
  std::vector<int> expected;
  for (int i = 0; i < 96; ++i)
    expected.push_back(std::accumulate(x.begin() + i / 32 * 32, x.begin() + (i / 32 + 1) * 32, 0));
  CHECK(to_host<int>(device, sums) == expected);
}

TEST_CASE("a shuffle takes each lane's value from where CUDA does") {
  DeviceContext& device = context_of(0);
  const Scratch out(device.memory, 4 * 32 * sizeof(int));
  shuffle_lanes(device, out.data<int>());
  const std::vector<int> values = to_host<int>(device, out);
  for (int lane = 0; lane < 32; ++lane) {
    CAPTURE(lane);
    const int first = lane / 8 * 8;
    CHECK(values[static_cast<std::size_t>(lane)] == (lane + 3 <= first + 7 ? lane + 3 : lane));   // down by 3, width 8
    CHECK(values[static_cast<std::size_t>(32 + lane)] == (lane - 3 >= first ? lane - 3 : lane));  // up by 3, width 8
    CHECK(values[static_cast<std::size_t>(64 + lane)] == first + 5);                              // from 5, width 8
    CHECK(values[static_cast<std::size_t>(96 + lane)] == (lane < 20 ? 0xfffff & ~0x11 : -1));  // a ballot of 20 lanes
  }
}

TEST_CASE("shared memory holds nothing of the last block") {
  DeviceContext& device = context_of(0);
  const Scratch out(device.memory, 4 * sizeof(float));
  read_shared_memory(device, out.data<float>(), 4);
  for (const float value : to_host<float>(device, out)) CHECK(std::isnan(value));
}

TEST_CASE("the order of threads is another for each seed, and the same for one") {
  const auto order = [](const char* seed) {
    Child child({"/proc/self/exe", "prints the order of threads"}, {{"DDPRUN_CUDA_EMULATOR_SEED", seed}});
    const auto out = child.wait().out;
    const auto begin = out.find("order:");
    REQUIRE(begin != out.npos);
    return out.substr(begin, out.find('\n', begin) - begin);  // Catch2 prints a seed of its own before it
  };
  const std::string first = order("1");
  CHECK(order("1") == first);
  CHECK(order("2") != first);
}

TEST_CASE("prints the order of threads", "[.]") {
  DeviceContext& device = context_of(0);
  const Scratch order(device.memory, 257 * sizeof(int));
  check(cudaMemsetAsync(order.data(), 0, order.bytes(), device.stream()), "cudaMemsetAsync");
  record_order(device, order.data<int>());
  std::printf("order:");
  for (const int thread : to_host<int>(device, order)) std::printf(" %d", thread);
  std::printf("\n");
}

TEST_CASE("threads that wait for others in vain are reported, and the device is lost") {
  Child child({"/proc/self/exe", "threads wait in vain"});
  const Child::Result result = child.wait();
  CHECK(result.code == 0);
  CHECK(result.err.find("a kernel on device 0 cannot go on") != std::string::npos);
  CHECK(result.err.find("1 wait at __syncthreads()") != std::string::npos);
}

TEST_CASE("threads wait in vain", "[.]") {
  DeviceContext& device = context_of(0);
  wait_for_ever(device);
  CHECK(cudaStreamSynchronize(device.stream()) == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(device.stream()) == cudaErrorLaunchFailure);
  CHECK_THROWS_WITH(Scratch(device.memory, 1), Catch::Contains("unspecified launch failure"));
}

#ifdef __SANITIZE_THREAD__
TEST_CASE("ThreadSanitizer sees a barrier that is missing, also where the result is right") {
  const char* const removed = GENERATE("without a block barrier", "without a warp barrier");
  Child child({"/proc/self/exe", removed});
  const Child::Result result = child.wait();
  CHECK(result.code != 0);
  CHECK(result.err.find("data race") != std::string::npos);
}
#endif

TEST_CASE("without a block barrier", "[.]") {
  DeviceContext& device = context_of(0);
  const Scratch out(device.memory, 64 * sizeof(int));
  rotate(device, out.data<int>(), Barriers::none_of_block);
  to_host<int>(device, out);
}

TEST_CASE("without a warp barrier", "[.]") {
  DeviceContext& device = context_of(0);
  const Scratch out(device.memory, 64 * sizeof(int));
  rotate(device, out.data<int>(), Barriers::none_of_warp);
  to_host<int>(device, out);
}

TEST_CASE("barriers of warps and blocks order shared memory") {
  DeviceContext& device = context_of(0);
  const Scratch out(device.memory, 64 * sizeof(int));
  rotate(device, out.data<int>(), Barriers::all);
  std::vector<int> expected;
  for (int i = 0; i < 64; ++i) expected.push_back((i / 32 * 32 + (i + 1) % 32 + 32) % 64);
  CHECK(to_host<int>(device, out) == expected);
}

TEST_CASE("integers are added by all threads at once") {
  DeviceContext& device = context_of(0);
  const Scratch sum(device.memory, sizeof(int));
  check(cudaMemsetAsync(sum.data(), 0, sum.bytes(), device.stream()), "cudaMemsetAsync");
  count_threads(device, sum.data<int>(), 5, 96);
  CHECK(to_host<int>(device, sum) == std::vector<int>{5 * 96});
}

TEST_CASE("a launch that the device cannot serve fails at once") {
  DeviceContext& device = context_of(0);
  CHECK_THROWS_WITH(number_threads(device, nullptr, 0, 1, 1025), Catch::Contains("invalid configuration"));
  CHECK_THROWS_WITH(number_threads(device, nullptr, 0, 1, 0), Catch::Contains("invalid configuration"));
  const std::uint64_t launches = device.launches;
  number_threads(device, nullptr, 0, 0, 32);  // no block, no work
  CHECK(device.launches == launches);
}
