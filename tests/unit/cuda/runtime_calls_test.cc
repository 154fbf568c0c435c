// Each function of the CUDA runtime that the module calls fails once at each of its calls.
#include <algorithm>

#include "worker/cuda/emulator/machine.h"
#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"
#include "tests/support/catch.h"
#include "tests/unit/cuda/arrays.h"
#include "tests/unit/cuda/kernels.h"

extern "C" const ddprun::cuda::DeviceApi* ddprun_cuda_device_api();

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::testing;
using emulator::Machine;

namespace {

const DeviceApi& api() {
  return *ddprun_cuda_device_api();
}

void require(Outcome outcome) {
  if (outcome != nullptr) throw Error(outcome->code, outcome->text.data());
}

constexpr std::size_t count = 100, bytes = count * sizeof(float);

// Memory and an event, released as the worker releases them.
struct Held {
  ~Held() {
    api().synchronize(&device, Queue::compute);
    api().synchronize(&device, Queue::copies);
    api().release(&device, memory, bytes);
    api().release_pinned(pinned);
    for (void* const event : events)
      if (event != nullptr) api().destroy_event(event);
  }
  DeviceContext& device;
  void* memory = nullptr;
  void* pinned = nullptr;
  void* events[2] = {};
};

// Two devices are opened and described, and one runs a step's operations of memory, copies, streams and events.
float run_all() {
  int devices = 0;
  require(api().device_count(&devices));
  check(cudaSetDevice(0), "cudaSetDevice");
  DeviceContext first(0);
  check(cudaSetDevice(1), "cudaSetDevice");
  DeviceContext second(1);
  make_current(first);
  DeviceFacts facts{};
  require(api().describe(&first, &facts));
  DeviceMemoryFacts memory_facts{};
  require(api().memory_facts(&first, &memory_facts));

  Held held{first};
  require(api().allocate(&first, bytes, &held.memory));
  require(api().allocate_pinned(bytes, &held.pinned));
  for (void*& event : held.events) require(api().create_event(&first, &event));
  std::fill_n(static_cast<float*>(held.pinned), count, 1.0f);
  require(api().record_event(&first, Queue::compute, held.events[0]));
  require(api().order(&first, Queue::compute, Queue::copies));
  require(api().copy_bytes(&first, Queue::copies, Direction::to_device, held.memory, held.pinned, bytes));
  require(api().order(&first, Queue::copies, Queue::compute));
  make_current(second);
  const Scratch there(second.memory, bytes);
  require(api().copy_peer(&second, there.data(), &first, held.memory, bytes));
  require(api().copy_peer(&first, held.memory, &second, there.data(), bytes));
  make_current(first);
  const std::vector<float> ones(count, 1);
  {
    // The upload is more than a part of the ring: its events are recorded and awaited.
    const Scratch many = first.ring.upload(std::span<const float>(std::vector<float>(100000, 1)));
    const Scratch more = to_device(first, ones);
    add(first, static_cast<float*>(held.memory), more.data<float>(), count);
    check(cudaMemsetAsync(many.data(), 0, many.bytes(), first.stream()), "cudaMemsetAsync");
  }
  require(api().record_event(&first, Queue::compute, held.events[1]));
  require(api().copy_bytes(&first, Queue::compute, Direction::to_host, held.pinned, held.memory, bytes));
  require(api().synchronize(&first, Queue::compute));
  bool reached = false, idle = false;
  require(api().event_reached(held.events[1], &reached));
  require(api().is_idle(&first, Queue::compute, &idle));
  double seconds = -1;
  require(api().elapsed(held.events[0], held.events[1], &seconds));
  return reached && idle && seconds >= 0 ? static_cast<float*>(held.pinned)[count - 1] : -1;
}

struct Live {
  std::size_t streams, events, pinned, memory;
  friend bool operator==(const Live&, const Live&) = default;
};

Live live() {
  Machine& machine = Machine::get();
  machine.work_while_possible();
  const auto& calls = machine.calls();
  const auto count_of = [&](const char* function) { return calls.count(function); };
  return {.streams = count_of("cudaStreamCreateWithPriority") - count_of("cudaStreamDestroy"),
          .events = count_of("cudaEventCreateWithFlags") - count_of("cudaEventDestroy"),
          .pinned = machine.pinned().size(),
          .memory = machine.device(0).memory.pool_used() + machine.device(1).memory.pool_used()};
}

}  // namespace

TEST_CASE("each call of the runtime that fails is one error that names it, and nothing is lost or left behind") {
  auto& calls = Machine::get().calls();
  const std::string function = GENERATE(
      "cudaGetDeviceCount", "cudaSetDevice", "cudaGetDeviceProperties", "cudaDeviceGetAttribute",
      "cudaDeviceGetPCIBusId", "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaMemGetInfo",
      "cudaDeviceGetDefaultMemPool", "cudaMemPoolSetAttribute", "cudaMemPoolGetAttribute", "cudaMallocAsync",
      "cudaHostAlloc", "cudaMemcpyAsync", "cudaMemcpyPeerAsync", "cudaMemsetAsync", "cudaDeviceGetStreamPriorityRange",
      "cudaStreamCreateWithPriority", "cudaStreamSynchronize", "cudaStreamQuery", "cudaStreamWaitEvent",
      "cudaEventCreateWithFlags", "cudaEventRecord", "cudaEventQuery", "cudaEventElapsedTime", "cudaLaunchKernelExC");
  REQUIRE(run_all() == 2);
  const std::size_t memory = live().memory, pinned = live().pinned;
  int failures = 0;
  for (int n = 1;; ++n) {
    calls.fail(function + ":" + std::to_string(n));
    std::string text;
    float result = 0;
    try {
      result = run_all();
    } catch (const Error& error) {
      text = error.what();
    }
    if (!calls.has_failed()) {
      CHECK(text.empty());
      CHECK(result == 2);
      break;
    }
    ++failures;
    CAPTURE(function, n, text);
    if (text.empty()) {
      // An allocation is tried once more; the last waits of all are those for released resources.
      CHECK((function == "cudaMallocAsync" || function == "cudaStreamSynchronize" || function == "cudaSetDevice"));
      CHECK(result == 2);
    } else {
      const std::string named = function == "cudaLaunchKernelExC" ? "the launch of a kernel" : function;
      CHECK_THAT(text, Catch::StartsWith(named + " failed"));
    }
    const Live left = live();
    CHECK(left.streams == (function == "cudaStreamCreateWithPriority" ? 1 : 0));
    CHECK(left.events == (function == "cudaEventCreateWithFlags" ? 1 : 0));
    CHECK(left.memory == memory);
    CHECK(left.pinned == pinned);
    calls.fail("");
    CHECK(run_all() == 2);
  }
  calls.fail("");
  CHECK(failures > 0);
}

TEST_CASE("an allocation that fails twice is an error, and so is a failure to give back what is kept") {
  auto& calls = Machine::get().calls();
  DeviceContext& device = context_of(0);
  for (const std::string function : {"cudaStreamSynchronize", "cudaMemPoolTrimTo"}) {
    void* memory = nullptr;
    const std::size_t too_much = Machine::get().device(0).memory.capacity() + 1;
    calls.fail(function);
    const Outcome outcome = api().allocate(&device, too_much, &memory);
    CHECK(calls.has_failed());
    REQUIRE(outcome != nullptr);
    CHECK(outcome->exhausted == 0);
    CHECK_THAT(outcome->text.data(), Catch::StartsWith(function + " failed on cuda:0"));
    calls.fail("");
    const Outcome again = api().allocate(&device, too_much, &memory);
    REQUIRE(again != nullptr);
    CHECK(again->exhausted == too_much);
  }
}

TEST_CASE("memory whose release has failed is not used again") {
  auto& calls = Machine::get().calls();
  DeviceContext& device = context_of(0);
  const std::size_t used = live().memory;
  for (const char* function : {"cudaFreeAsync", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy"}) {
    calls.fail(function);
    CHECK(run_all() == 2);
    CHECK(calls.has_failed());
    calls.fail("");
    CHECK(run_all() == 2);
  }
  CHECK(live().memory <= used + 1024 * 1024);
  CHECK(device.memory.facts().allocated <= used);
}
