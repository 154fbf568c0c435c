// The profile of a session on an emulated device whose clock counts operations, each a microsecond.
#include <cstdlib>
#include <set>

#include "worker/comm/init.h"
#include "worker/profiler/summary.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "worker/trainer/report/profiling.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;
using profiler::Seconds;

namespace {

[[maybe_unused]] const bool has_devices =
    test::use_emulated_cuda(1) && ::setenv("DDPRUN_CUDA_EMULATOR_CLOCK", "operations", 1) == 0;
const Device device{DeviceType::cuda, 0};

const std::string job_text =
    "[model]\nname = mlp\nhidden = 16 8\n[data]\nname = random\nsamples = 80\ntest_samples = 10\nworkers = 0\n"
    "[train]\nbatch_size = 4\naccumulate = 2\n";

class Job {
 public:
  Job()
      : job_(job_text),
        replica_(job_, device),
        world_(init_process_group({.config = {.device = device.index}, .env = {}})),
        session_(replica_.session(world_->group())) {}
  TrainSession& session() { return *session_; }

 private:
  TrainingJob job_;
  Replica replica_;
  std::unique_ptr<World> world_;
  std::unique_ptr<TrainSession> session_;
};

profiler::Summary profile(Session& session, std::int64_t steps) {
  Profiling profiling(session, 2, steps);
  while (!profiling.step_done(session.step(false))) {
  }
  return profiling.summary();
}

// The counts of a step: the host's waits for the device, and the kernels that it queues.
struct StepCounts {
  std::uint64_t synchronizations = 0, launches = 0;
  double loss = 0;
  friend bool operator==(const StepCounts&, const StepCounts&) = default;
};

std::vector<StepCounts> counts_of_steps(bool profiled) {
  Job job;
  const auto& on = cuda::CudaDevice::of(device);
  std::unique_ptr<Profiling> profiling;
  if (profiled) profiling = std::make_unique<Profiling>(job.session(), 1, 4);
  std::vector<StepCounts> counts;
  for (int step = 0; step < 5; ++step) {
    const auto waits = on.api().synchronizations(on.context()), launches = on.api().launches(on.context());
    const auto result = job.session().step(false);
    counts.push_back(
        {on.api().synchronizations(on.context()) - waits, on.api().launches(on.context()) - launches, result.loss});
    if (profiling) profiling->step_done(result);
  }
  return counts;
}

}  // namespace

TEST_CASE("in a profiled step the host waits for the device as often as in another, and the losses are the same") {
  const auto plain = counts_of_steps(false), profiled = counts_of_steps(true);
  CHECK(plain == profiled);
  CHECK(plain.back().launches > 0);
}

TEST_CASE("the profile of a device counts each operation once, alike in each run") {
  constexpr int steps = 3;
  const auto run = [] {
    Job job;
    return profile(job.session(), steps);
  };
  const auto summary = run(), again = run();
  REQUIRE(summary.ranks.size() == 1);
  const auto& times = summary.ranks[0].times;
  const auto operations = [](Seconds time) { return static_cast<int>(1e6 * time.count() + 0.5); };
  CHECK(operations(times.upload) == steps * 2 * 2);  // for input and target of each micro-batch
  CHECK(times.upload == summary.ranks[0].device.value().copies);
  CHECK(operations(times.data) == 0);
  CHECK(operations(times.forward) > 0);
  Seconds in_operations{0};
  std::set<std::string> modules;
  for (const auto& row : summary.rows) {
    in_operations += row.time;
    modules.insert(row.module);
    CHECK(row.calls % (2 * steps) == 0);
    CHECK(row.host.count() > 0);
  }
  CHECK(modules.size() > 3);
  CHECK(operations(in_operations) > 0);
  CHECK(in_operations <= times.forward + times.backward);
  for (const auto part : {&profiler::StepTimes::upload, &profiler::StepTimes::forward, &profiler::StepTimes::backward,
                          &profiler::StepTimes::optimizer, &profiler::StepTimes::wait})
    CHECK(operations(times.*part) == operations(again.ranks[0].times.*part));
  REQUIRE(summary.rows.size() == again.rows.size());
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    CHECK(operations(summary.rows[i].time) == operations(again.rows[i].time));
}

TEST_CASE("the times of a step on a device are those of all that it has done in it") {
  Job job;
  const auto& on = cuda::CudaDevice::of(device);
  Profiling profiling(job.session(), 1, 1);
  profiling.step_done(job.session().step(false));
  void *before = nullptr, *after = nullptr;
  for (void** event : {&before, &after}) cuda::check(on.api().create_event(on.context(), event));
  cuda::check(on.api().record_event(on.context(), cuda::Queue::compute, before));
  const auto result = job.session().step(false);
  cuda::check(on.api().record_event(on.context(), cuda::Queue::compute, after));
  profiling.step_done(result);
  on.synchronize();
  double seconds = 0;
  cuda::check(on.api().elapsed(before, after, &seconds));
  CHECK(profiling.summary().ranks[0].times.total().count() == Approx(seconds));
  for (void* event : {before, after}) on.api().destroy_event(event);
}
