// Times of points in the queues of an emulated device whose clock counts operations, each a microsecond.
#include "worker/tensor/device_marks.h"

#include <cstdlib>

#include "worker/tensor/cuda/cuda_device.h"
#include "worker/tensor/tensor.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

[[maybe_unused]] const bool has_devices =
    test::use_emulated_cuda(1) && ::setenv("DDPRUN_CUDA_EMULATOR_CLOCK", "operations", 1) == 0;
const Device device{DeviceType::cuda, 0};

const cuda::CudaDevice& opened() {
  return cuda::CudaDevice::of(device);
}

class Work {
 public:
  void queue(int operations) {
    for (int i = 0; i < operations; ++i) memory_.fill(i);
  }

 private:
  Tensor memory_ = Tensor::empty({100}, DType::float32, device);
};

std::uint64_t synchronizations() {
  return opened().api().synchronizations(opened().context());
}

}  // namespace

TEST_CASE("between two points lies the time of what was queued between them") {
  Work work;
  DeviceMarks marks(device);
  const auto first = marks.record();
  work.queue(3);
  const auto second = marks.record();
  const auto third = marks.record();
  work.queue(40);
  const auto fourth = marks.record();
  marks.end_step();
  const auto times = marks.await_step().value();
  REQUIRE(times.size() == 4);
  CHECK(times[second] - times[first] == 3us);
  CHECK(times[third] == times[second]);
  CHECK(times[fourth] - times[third] == 40us);
}

TEST_CASE("times of several steps count from one moment, and what lies between steps is in them") {
  Work work;
  DeviceMarks marks(device);
  work.queue(5);
  for (int step = 1; step <= 3; ++step) {
    marks.record();
    work.queue(step);
    marks.record();
    marks.end_step();
    work.queue(10);
  }
  CHECK(marks.await_step().value() == std::vector<DeviceMarks::Time>{5us, 6us});
  CHECK(marks.await_step().value() == std::vector<DeviceMarks::Time>{16us, 18us});
  CHECK(marks.await_step().value() == std::vector<DeviceMarks::Time>{28us, 31us});
  CHECK_FALSE(marks.await_step());
}

TEST_CASE("the host does not wait for points, and reads a step's once the device has passed them") {
  Work work;
  DeviceMarks marks(device);
  const auto before = synchronizations();
  int taken = 0;
  for (int step = 0; step < 200 || taken < step; ++step) {
    if (step < 200) {
      marks.record();
      work.queue(1);
      marks.record();
      marks.end_step();
    }
    while (const auto times = marks.take_step()) {
      ++taken;
      CHECK(times->at(1) - times->at(0) == 1us);
    }
    if (step >= 200 && taken == 200) break;
  }
  CHECK(taken == 200);
  CHECK(synchronizations() == before);
}

TEST_CASE("events are used again once their step is read") {
  Work work;
  DeviceMarks marks(device);
  for (int step = 0; step < 100; ++step) {
    for (int i = 0; i < 10; ++i) marks.record();
    marks.end_step();
    marks.await_step().value();
  }
  CHECK(marks.events() <= 1 + 2 * 10);
}

TEST_CASE("a reserved point has the time of the queue in which it was recorded, once it is confirmed") {
  Work work;
  DeviceMarks marks(device);
  const auto& on = opened();
  marks.record();
  work.queue(7);
  const auto recorded = marks.reserve(), unrecorded = marks.reserve();
  cuda::check(on.api().order(on.context(), cuda::Queue::compute, cuda::Queue::communication));
  cuda::check(on.api().record_event(on.context(), cuda::Queue::communication, recorded.event));
  marks.confirm(recorded.number);
  work.queue(2);
  const auto last = marks.record();
  marks.end_step();
  const auto times = marks.await_step().value();
  CHECK(times[recorded.number] - times[0] == 7us);
  CHECK(times[unrecorded.number] == times[0]);
  CHECK(times[last] - times[0] == 9us);
}
