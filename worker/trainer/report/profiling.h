#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "common/dtype.h"
#include "worker/profiler/summary.h"
#include "worker/tensor/allocation_count.h"
#include "worker/trainer/report/step_recorder.h"
#include "worker/trainer/session/session.h"

namespace ddprun::trainer {

// Profiles steps of a session: from the constructor on warm-up steps, then those that are recorded. All ranks make one
// and call step_done() after every step. A model on a CUDA device is profiled by the device's clock. The constructor,
// the end of the warm-up, summary() and write_trace() are collective.
//
// Ownership: the session outlives it; there is one at a time for a session. Threads: the training loop's. Errors: those
//   of StepRecorder.
class Profiling {
 public:
  // products: the type in which products on a device are computed.
  Profiling(Session& session, std::int64_t warmup, std::int64_t steps, DType products = DType::float32);
  ~Profiling();
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;

  // Returns whether all steps are recorded by now; recording has ended then.
  bool step_done(const StepResult& result);
  // Ends the recording if it has not ended.
  void stop();

  // Sums up what is recorded: the times of all ranks, and the rest of this one. REQUIRES: recorded() > 0, stopped
  profiler::Summary summary();
  // Rank 0 writes the events of all ranks to a file, atomically. Throws Errc::io there.
  void write_trace(const std::filesystem::path& path);
  std::int64_t recorded() const { return recorded_; }

 private:
  void start();
  profiler::RankSummary own_summary() const;

  Session& session_;
  const std::int64_t warmup_;
  const std::int64_t steps_;
  const Device device_;
  const double peak_flops_;
  std::int64_t done_ = 0;  // the number of steps, with those of the warm-up
  std::int64_t recorded_ = 0;
  std::int64_t samples_ = 0;
  std::size_t activation_peak_ = 0;
  AllocationCount allocated_before_;
  AllocationCount allocated_;
  std::unique_ptr<StepRecorder> recorder_;  // set while steps are recorded
  RecordedSteps steps_recorded_;            // set once they are
};

}  // namespace ddprun::trainer
