// The owners of an emulated CUDA device's memory, and the messages when there is not enough.
#include "worker/tensor/device_memory.h"

#include <cstdlib>
#include <thread>
#include <vector>

#include "worker/cuda/cuda_module.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "worker/tensor/device_fault.h"
#include "worker/tensor/tensor.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"

using namespace ddprun;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
[[maybe_unused]] const bool has_devices =
    test::use_emulated_cuda(2) && ::setenv("DDPRUN_CUDA_EMULATOR_MEMORY", "67108864", 1) == 0;
const Device device{DeviceType::cuda, 0};

Tensor tensor_of(std::size_t bytes, MemoryOwner owner) {
  const MemoryScope scope(owner);
  return Tensor::empty({static_cast<std::int64_t>(bytes / sizeof(float))}, DType::float32, device);
}

std::size_t sum(const DeviceMemoryUse& use) {
  std::size_t bytes = use.workspaces + use.kept + use.others + use.free;
  for (const std::size_t each : use.owners) bytes += each;
  return bytes;
}

// AddressSanitizer wants a gap behind each block of the emulated device.
bool is_about(std::size_t bytes, std::size_t expected) {
  constexpr std::size_t gaps = 4096;
  return bytes >= expected && bytes <= expected + gaps;
}

// Memory of the device that is no tensor's and that nobody claims.
class Foreign {
 public:
  explicit Foreign(std::size_t bytes) {
    REQUIRE(CudaModule::get().symbol<int(void**, std::size_t)>("cudaMalloc")(&memory_, bytes) == 0);
  }
  ~Foreign() { CudaModule::get().symbol<int(void*)>("cudaFree")(memory_); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

 private:
  void* memory_ = nullptr;
};

std::uint64_t calls_of(const char* function) {
  return CudaModule::get().symbol<std::uint64_t(const char*)>("ddprun_cuda_emulator_calls")(function);
}
void fail(const char* specification) {
  CudaModule::get().symbol<void(const char*)>("ddprun_cuda_emulator_fail")(specification);
}

// Frees the memory that the last test has left with the allocator.
void trim() {
  const auto& cuda = cuda::CudaDevice::of(device);
  cuda.synchronize();
  using Pool = void*;
  Pool pool = nullptr;
  REQUIRE(CudaModule::get().symbol<int(Pool*, int)>("cudaDeviceGetDefaultMemPool")(&pool, 0) == 0);
  REQUIRE(CudaModule::get().symbol<int(Pool, std::size_t)>("cudaMemPoolTrimTo")(pool, 0) == 0);
}

OutOfDeviceMemory exhausted(std::size_t bytes, MemoryOwner owner) {
  try {
    tensor_of(bytes, owner);
  } catch (const OutOfDeviceMemory& error) {
    return error;
  }
  FAIL("there was memory");
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("memory of tensors is counted for the scope in which they were made, until they end") {
  trim();
  const DeviceMemoryUse before = device_memory_use(device);
  {
    const Tensor weight = tensor_of(2 * mib, MemoryOwner::parameters);
    const MemoryScope outer(MemoryOwner::optimizer);
    const Tensor average = Tensor::empty({static_cast<std::int64_t>(mib)}, DType::float32, device);
    const Tensor gradient = tensor_of(mib, MemoryOwner::gradients);
    const Tensor another = Tensor::empty({10}, DType::uint8, device);
    const DeviceMemoryUse use = device_memory_use(device);
    CHECK(use.of(MemoryOwner::parameters) == before.of(MemoryOwner::parameters) + 2 * mib);
    CHECK(use.of(MemoryOwner::optimizer) == before.of(MemoryOwner::optimizer) + 4 * mib + 64);
    CHECK(use.of(MemoryOwner::gradients) == before.of(MemoryOwner::gradients) + mib);
    CHECK(use.of(MemoryOwner::activations) == before.of(MemoryOwner::activations));
    CHECK(sum(use) == use.total);
  }
  CHECK(device_memory_use(device).owners == before.owners);
}

TEST_CASE("a scope is its thread's own") {
  const MemoryScope scope(MemoryOwner::parameters);
  MemoryOwner found = MemoryOwner::parameters;
  std::thread([&] { found = memory_owner(); }).join();
  CHECK(found == MemoryOwner::activations);
  CHECK(memory_owner() == MemoryOwner::parameters);
}

TEST_CASE("claimed memory is the owner's, unclaimed memory that of others") {
  trim();
  const DeviceMemoryUse before = device_memory_use(device);
  const Foreign buckets(3 * mib);
  CHECK(is_about(device_memory_use(device).others, before.others + 3 * mib));
  {
    const MemoryClaim claim(device, MemoryOwner::gradients, 3 * mib);
    const DeviceMemoryUse use = device_memory_use(device);
    CHECK(use.of(MemoryOwner::gradients) == before.of(MemoryOwner::gradients) + 3 * mib);
    CHECK(is_about(use.others, before.others));
    CHECK(sum(use) == use.total);
    CHECK(memory_by_owner(Device{DeviceType::cuda, 1}).claims == MemoryByOwner{});
  }
  CHECK(is_about(device_memory_use(device).others, before.others + 3 * mib));
}

TEST_CASE("what tensors have let go is kept for the next one") {
  trim();
  { const Tensor gone = tensor_of(5 * mib, MemoryOwner::activations); }
  cuda::CudaDevice::of(device).synchronize();
  const DeviceMemoryUse use = device_memory_use(device);
  CHECK(is_about(use.kept, 5 * mib));
  CHECK(sum(use) == use.total);
}

TEST_CASE("a device without enough memory says what was wanted for what, and who holds how much, the most first") {
  trim();
  const Foreign other(9 * mib);
  const Tensor state = tensor_of(24 * mib, MemoryOwner::optimizer),
               weights = tensor_of(12 * mib, MemoryOwner::parameters);
  { const Tensor gone = tensor_of(8 * mib, MemoryOwner::activations); }
  const OutOfDeviceMemory error = exhausted(20 * mib, MemoryOwner::gradients);
  CHECK(error.code() == Errc::io);
  CHECK(error.device() == device);
  CHECK(error.wanted() == 20 * mib);
  CHECK(error.wanted_for() == MemoryOwner::gradients);
  CHECK(is_about(error.use().kept, 0));
  // Under AddressSanitizer some hundred bytes behind each allocation are counted as kept.
  CHECK_THAT(error.what(),
             Catch::StartsWith("cuda:0 is out of memory: 20.0 MiB are wanted for gradients, 19.0 MiB of "
                               "64.0 MiB are free; held by optimizer state 24.0 MiB, parameters 12.0 MiB, "
                               "other processes and CUDA's own 9.0 MiB"));
}

TEST_CASE("before an allocation fails, what is kept is given back, and it is tried once more") {
  trim();
  const Tensor held = tensor_of(mib, MemoryOwner::parameters);
  fail("cudaMallocAsync:1");
  CHECK_NOTHROW(tensor_of(mib, MemoryOwner::activations));
  CHECK(calls_of("cudaMallocAsync") == 2);
  CHECK(calls_of("cudaMemPoolTrimTo") == 1);
  fail("");
  CHECK_NOTHROW(tensor_of(mib, MemoryOwner::activations));
  CHECK(calls_of("cudaMallocAsync") == 1);
  CHECK(calls_of("cudaMemPoolTrimTo") == 0);
}

TEST_CASE("a device that had not enough memory goes on once some is let go") {
  trim();
  std::vector<Tensor> held;
  for (int i = 0; i < 4; ++i) held.push_back(tensor_of(15 * mib, MemoryOwner::activations));
  const MemoryByOwner before = memory_by_owner(device).tensors;
  exhausted(15 * mib, MemoryOwner::activations);
  CHECK(memory_by_owner(device).tensors == before);
  held.pop_back();
  CHECK_NOTHROW(tensor_of(15 * mib, MemoryOwner::activations));
}

TEST_CASE("whether a device has failed is known without a wait, and its error is of a kind of its own") {
  const Device other{DeviceType::cuda, 1};
  CHECK_FALSE(device_fault(Device{}).has_value());
  CHECK_FALSE(device_fault(other).has_value());
  fail("cudaStreamQuery:1:700");
  const auto fault = device_fault(other);
  fail("");
  REQUIRE(fault.has_value());
  CHECK_THAT(fault->what(), Catch::StartsWith("cudaStreamQuery failed on cuda:1: an illegal memory access"));
  CHECK(device_fault(other).has_value());  // the fault is permanent
  CHECK_THROWS_AS(Tensor::zeros({1}, DType::float32, other), DeviceError);
  CHECK_FALSE(device_fault(device).has_value());
}
