#include <array>
#include <cstring>

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

const DeviceApi& api() {
  return *ddprun_cuda_device_api();
}

// Makes a copy of one number on each of two streams; returns whether the second one saw the first one's.
bool sees_copy(DeviceContext& device, bool ordered) {
  const Scratch between(device.memory, sizeof(float));
  const PinnedMemory from = make_pinned(sizeof(float)), to = make_pinned(sizeof(float));
  const float sent = 7;
  float received = 0;
  std::memcpy(from.get(), &sent, sizeof sent);
  order(device.stream(), device.copies.get());  // after the allocation
  check(cudaMemcpyAsync(between.data(), from.get(), sizeof(float), cudaMemcpyHostToDevice, device.copies.get()),
        "copy");
  if (ordered) order(device.copies.get(), device.communication.get());
  check(cudaMemcpyAsync(to.get(), between.data(), sizeof(float), cudaMemcpyDeviceToHost, device.communication.get()),
        "copy");
  check(cudaStreamSynchronize(device.communication.get()), "cudaStreamSynchronize");
  check(cudaStreamSynchronize(device.copies.get()), "cudaStreamSynchronize");
  std::memcpy(&received, to.get(), sizeof received);
  return received == sent;
}

}  // namespace

TEST_CASE("streams run in any order but for events") {
  DeviceContext& device = context_of(0);
  int seen = 0;
  for (int i = 0; i < 50; ++i) seen += sees_copy(device, false);
  CHECK(seen > 0);
  CHECK(seen < 50);
  for (int i = 0; i < 50; ++i) CHECK(sees_copy(device, true));
}

TEST_CASE("page-locked memory is read when the copy runs, other memory before the call returns") {
  DeviceContext& device = context_of(0);
  const Scratch memory(device.memory, sizeof(int));
  const PinnedMemory pinned = make_pinned(sizeof(int));
  int late = 0;
  for (int i = 1; i <= 50; ++i) {
    std::memcpy(pinned.get(), &i, sizeof i);
    check(cudaMemcpyAsync(memory.data(), pinned.get(), sizeof i, cudaMemcpyHostToDevice, device.stream()), "copy");
    const int changed = -i;
    std::memcpy(pinned.get(), &changed, sizeof changed);
    late += to_host<int>(device, memory).front() == changed;

    int pageable = i;
    check(cudaMemcpyAsync(memory.data(), &pageable, sizeof i, cudaMemcpyHostToDevice, device.stream()), "copy");
    pageable = 0;
    CHECK(to_host<int>(device, memory).front() == i);
  }
  CHECK(late > 0);
}

TEST_CASE("an event is reached after what was queued before it") {
  DeviceContext& device = context_of(0);
  void *begin = nullptr, *end = nullptr;
  REQUIRE(api().create_event(&device, &begin) == nullptr);
  REQUIRE(api().create_event(&device, &end) == nullptr);
  const Scratch x(device.memory, 64 * sizeof(float));
  REQUIRE(api().record_event(&device, Queue::compute, begin) == nullptr);
  check(cudaMemsetAsync(x.data(), 0, x.bytes(), device.stream()), "cudaMemsetAsync");
  REQUIRE(api().record_event(&device, Queue::compute, end) == nullptr);
  bool reached = false;
  for (int asked = 0; !reached; ++asked) {
    REQUIRE(asked < 1000);
    REQUIRE(api().event_reached(end, &reached) == nullptr);
  }
  double seconds = -1;
  REQUIRE(api().elapsed(begin, end, &seconds) == nullptr);
  CHECK(seconds >= 0);
  bool idle = false;
  REQUIRE(api().is_idle(&device, Queue::compute, &idle) == nullptr);
  api().destroy_event(begin);
  api().destroy_event(end);
}

// Returns the seconds between two events that were reached.
double between(void* from, void* to) {
  double seconds = 0;
  REQUIRE(api().elapsed(from, to, &seconds) == nullptr);
  return seconds;
}

TEST_CASE("times of events are in the order of their queues and of what these wait for") {
  DeviceContext& device = context_of(0);
  const Scratch x = to_device(device, std::vector<float>(1000, 1)), y = to_device(device, std::vector<float>(1000, 1));
  std::array<void*, 5> events{};
  for (void*& event : events) REQUIRE(api().create_event(&device, &event) == nullptr);
  const auto record = [&](Queue queue, std::size_t event) {
    REQUIRE(api().record_event(&device, queue, events[event]) == nullptr);
  };
  for (int round = 0; round < 20; ++round) {
    record(Queue::compute, 0);
    add(device, x.data<float>(), y.data<float>(), 1000);
    record(Queue::compute, 1);
    REQUIRE(api().order(&device, Queue::compute, Queue::copies) == nullptr);
    record(Queue::copies, 2);
    add(device, x.data<float>(), y.data<float>(), 1000);
    record(Queue::compute, 3);
    REQUIRE(api().order(&device, Queue::copies, Queue::compute) == nullptr);
    record(Queue::compute, 4);
    for (const Queue queue : {Queue::compute, Queue::copies}) REQUIRE(api().synchronize(&device, queue) == nullptr);
    CHECK(between(events[0], events[1]) > 0);
    CHECK(between(events[1], events[2]) >= 0);
    CHECK(between(events[1], events[3]) > 0);
    CHECK(between(events[2], events[4]) >= 0);
    CHECK(between(events[3], events[4]) >= 0);
    const double parts = between(events[0], events[1]) + between(events[1], events[3]) + between(events[3], events[4]);
    CHECK(parts == Approx(between(events[0], events[4])));
  }
  for (void* const event : events) api().destroy_event(event);
}

TEST_CASE("a copy between devices follows what both had before") {
  DeviceContext& first = context_of(0);
  DeviceContext& second = context_of(1);
  for (float value = 1; value < 20; ++value) {
    const Scratch from = to_device(first, std::vector<float>(100, value));
    const Scratch one = to_device(first, std::vector<float>(100, 1));
    add(first, from.data<float>(), one.data<float>(), 100);
    make_current(second);
    const Scratch to(second.memory, from.bytes());
    REQUIRE(api().copy_peer(&second, to.data(), &first, from.data(), from.bytes()) == nullptr);
    make_current(second);
    CHECK(to_host<float>(second, to) == std::vector<float>(100, value + 1));
  }
}

TEST_CASE("a copy between devices ends before what both have after it") {
  DeviceContext& first = context_of(0);
  DeviceContext& second = context_of(1);
  for (float value = 1; value < 20; ++value) {
    make_current(second);
    const Scratch to = to_device(second, std::vector<float>(100, -1));
    const Scratch more = to_device(second, std::vector<float>(100, 10));
    add(second, to.data<float>(), more.data<float>(), 100);
    make_current(first);
    const Scratch from = to_device(first, std::vector<float>(100, value));
    REQUIRE(api().copy_peer(&second, to.data(), &first, from.data(), from.bytes()) == nullptr);
    make_current(first);
    check(cudaMemsetAsync(from.data(), 0, from.bytes(), first.stream()), "cudaMemsetAsync");
    make_current(second);
    add(second, to.data<float>(), more.data<float>(), 100);
    CHECK(to_host<float>(second, to) == std::vector<float>(100, value + 10));
    make_current(first);
    CHECK(to_host<float>(first, from) == std::vector<float>(100, 0));
  }
}

TEST_CASE("the host waits as often as it is counted") {
  DeviceContext& device = context_of(0);
  const std::uint64_t before = api().synchronizations(&device);
  const Scratch memory = to_device(device, std::vector<float>(3));
  const PinnedMemory pinned = make_pinned(memory.bytes());
  REQUIRE(api().copy_bytes(&device, Queue::compute, Direction::to_host, pinned.get(), memory.data(), memory.bytes()) ==
          nullptr);
  CHECK(api().synchronizations(&device) == before);
  REQUIRE(api().synchronize(&device, Queue::compute) == nullptr);
  CHECK(api().synchronizations(&device) == before + 1);
  std::vector<float> values(3);
  REQUIRE(api().copy_bytes(&device, Queue::compute, Direction::to_host, values.data(), memory.data(), memory.bytes()) ==
          nullptr);
  CHECK(api().synchronizations(&device) == before + 2);
}

TEST_CASE("arrays of the host arrive, however many and large they are") {
  DeviceContext& device = context_of(0);
  for (const std::size_t n : {1, 1000, 40'000, 200'000, 3}) {
    std::vector<std::int64_t> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int64_t>(i * n);
    const Scratch memory = to_device(device, values);
    CHECK(to_host<std::int64_t>(device, memory) == values);
  }
}

TEST_CASE("facts of a device") {
  DeviceContext& device = context_of(1);
  DeviceFacts facts{};
  REQUIRE(api().describe(&device, &facts) == nullptr);
  CHECK(std::string(facts.name.data()) == "emulated device");
  CHECK(std::string(facts.bus_id.data()) == "0000:02:00.0");
  CHECK(facts.major == 9);
  CHECK(facts.runtime_version == 13000);
  CHECK(api().emulated);
  CHECK(api().version == interface_version);
  int count = 0;
  REQUIRE(api().device_count(&count) == nullptr);
  CHECK(count == 3);
  DeviceContext* none = nullptr;
  const Outcome outcome = api().open(3, &none);
  REQUIRE(outcome != nullptr);
  CHECK(outcome->code == Errc::usage);
  CHECK(std::string(outcome->text.data()).find("invalid device ordinal") != std::string::npos);
}
