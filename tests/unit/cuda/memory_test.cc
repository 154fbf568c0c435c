#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/unique_fd.h"
#include "worker/cuda/emulator/control.h"
#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/unit/cuda/arrays.h"
#include "tests/unit/cuda/kernels.h"

extern "C" const ddprun::cuda::DeviceApi* ddprun_cuda_device_api();

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::testing;

namespace {

// The kernel reads for the process: it returns EFAULT where a read of the process itself would be a crash.
bool host_can_read(const char* memory) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  const ssize_t written = ::write(writer.get(), memory, 1);
  if (written != 1) REQUIRE(errno == EFAULT);
  return written == 1;
}

std::size_t used_bytes() {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return total - free;
}

// Runs a small version of a step: memory, an upload, kernels, streams, events, copies.
Outcome run_program(DeviceContext& device, float* result) {
  const DeviceApi& api = *ddprun_cuda_device_api();
  const std::vector<float> ones(100, 1);
  void *x = nullptr, *pinned = nullptr;
  const auto steps = [&]() -> Outcome {
    if (const Outcome failed = api.allocate(&device, 400, &x)) return failed;
    if (const Outcome failed = api.allocate_pinned(400, &pinned)) return failed;
    std::copy(ones.begin(), ones.end(), static_cast<float*>(pinned));
    if (const Outcome failed = api.order(&device, Queue::compute, Queue::copies)) return failed;
    if (const Outcome failed = api.copy_bytes(&device, Queue::copies, Direction::to_device, x, pinned, 400))
      return failed;
    if (const Outcome failed = api.order(&device, Queue::copies, Queue::compute)) return failed;
    if (const Outcome failed = outcome_of([&] {
          const Scratch y = to_device(device, ones);
          add(device, static_cast<float*>(x), y.data<float>(), 100);
        }))
      return failed;
    if (const Outcome failed = api.copy_bytes(&device, Queue::compute, Direction::to_host, pinned, x, 400))
      return failed;
    if (const Outcome failed = api.synchronize(&device, Queue::compute)) return failed;
    *result = static_cast<float*>(pinned)[99];
    return nullptr;
  };
  const Outcome outcome = steps();
  static Failure kept;
  if (outcome != nullptr) kept = *outcome;
  api.synchronize(&device, Queue::copies);  // after a failed step, a copy may still be in progress
  api.release(&device, x, 400);
  api.release_pinned(pinned);
  return outcome == nullptr ? nullptr : &kept;
}

}  // namespace

TEST_CASE("the host cannot read memory of a device") {
  DeviceContext& device = context_of(0);
  const Scratch memory = to_device(device, std::vector<float>(10));
  check(cudaStreamSynchronize(device.stream()), "cudaStreamSynchronize");
  CHECK_FALSE(host_can_read(memory.data<char>()));
  const PinnedMemory pinned = make_pinned(1);
  CHECK(host_can_read(reinterpret_cast<const char*>(pinned.get())));
}

TEST_CASE("new memory of a device has no numbers") {
  DeviceContext& device = context_of(0);
  const Scratch memory(device.memory, sizeof(float));
  const float value = to_host<float>(device, memory).front();
  CHECK(value != value);
}

TEST_CASE("a copy must begin and end where its direction says, within one allocation") {
  DeviceContext& device = context_of(0);
  const Scratch memory(device.memory, 512);
  std::vector<char> host(1024);
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, device.stream());
  };
  CHECK(copy(memory.data(), host.data(), 512, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(memory.data(), host.data(), 1024, cudaMemcpyHostToDevice) != cudaSuccess);
  CHECK(copy(host.data(), memory.data(), 512, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), host.data() + 512, 512, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
}

TEST_CASE("an exhausted device gives back what is kept, says what is there, and goes on") {
  Child child({"/proc/self/exe", "exhausts the device"}, {{"DDPRUN_CUDA_EMULATOR_MEMORY", "67108864"}});
  const Child::Result result = child.wait();
  CAPTURE(result.out);
  CHECK(result.code == 0);
}

TEST_CASE("exhausts the device", "[.]") {
  const DeviceApi& api = *ddprun_cuda_device_api();
  DeviceContext& device = context_of(0);
  std::vector<Scratch> held;
  for (int i = 0; i < 3; ++i) held.emplace_back(device.memory, std::size_t{16} << 20);
  held.emplace_back(device.memory, 1000);
  void* memory = nullptr;
  const Outcome outcome = api.allocate(&device, std::size_t{16} << 20, &memory);
  REQUIRE(outcome != nullptr);
  const std::string text = outcome->text.data();
  CAPTURE(text);
  CHECK(text.find("cuda:0 is out of memory: 16.0 MiB wanted") != text.npos);
  CHECK(text.find("of 64.0 MiB are free; this process has 48.0 MiB") != text.npos);
  CHECK(outcome->device == 0);
  CHECK(outcome->exhausted == std::size_t{16} << 20);
  CHECK(memory == nullptr);

  held.pop_back();
  held.pop_back();
  // Released memory may be used again at once, though its kernels are still queued.
  REQUIRE(api.allocate(&device, std::size_t{16} << 20, &memory) == nullptr);
  api.release(&device, memory, std::size_t{16} << 20);
  // The pool keeps it, and another user of the device needs it.
  REQUIRE(api.synchronize(&device, Queue::compute) == nullptr);
  void* other = nullptr;
  CHECK(cudaMalloc(&other, std::size_t{20} << 20) == cudaErrorMemoryAllocation);
  REQUIRE(api.allocate(&device, std::size_t{31} << 20, &memory) == nullptr);
  CHECK(api.synchronize(&device, Queue::compute) == nullptr);
}

TEST_CASE("every call of a program that fails gives one error and leaves nothing behind") {
  DeviceContext& device = context_of(0);
  float result = 0;
  ddprun_cuda_emulator_fail("");
  REQUIRE(run_program(device, &result) == nullptr);
  CHECK(result == 2);
  const auto calls = ddprun_cuda_emulator_calls("*");
  REQUIRE(calls > 20);
  const std::size_t used = used_bytes();

  for (std::uint64_t n = 1; n <= calls; ++n) {
    CAPTURE(n);
    ddprun_cuda_emulator_fail(("*:" + std::to_string(n)).c_str());
    result = 0;
    const Outcome outcome = run_program(device, &result);
    CHECK(ddprun_cuda_emulator_has_failed());
    ddprun_cuda_emulator_fail("");
    if (outcome == nullptr)
      CHECK(result == 2);  // a call whose failure changes nothing
    else
      CHECK(std::string(outcome->text.data()).find("cuda:0") != std::string::npos);
    CHECK(run_program(device, &result) == nullptr);
  }
  // Two calls fail to release the memory itself; AddressSanitizer wants a gap behind each block.
  CHECK(used_bytes() <= used + 2 * 1024);
}

TEST_CASE("a device that could not be opened can be opened later") {
  ddprun_cuda_emulator_fail("");
  context_of(1);
  const std::uint64_t calls = ddprun_cuda_emulator_calls("*");
  for (std::uint64_t n = 1; n < calls; ++n) {
    CAPTURE(n);
    ddprun_cuda_emulator_fail(("*:" + std::to_string(n)).c_str());
    CHECK_THROWS(DeviceContext(2));
    ddprun_cuda_emulator_fail("");
  }
  CHECK_NOTHROW(context_of(2));
}
