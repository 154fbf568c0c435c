#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker/profiler/event.h"
#include "worker/profiler/overlap.h"
#include "worker/profiler/summary.h"
#include "worker/tensor/device.h"
#include "worker/trainer/session/session.h"

namespace ddprun::trainer {

// The record of a rank's steps.
struct RecordedSteps {
  StepTimes times;                           // those of all steps
  std::vector<profiler::Event> trace;        // all events to show
  std::vector<profiler::Event> operations;   // the events whose times count
  std::vector<profiler::ReducedStep> steps;  // the reductions of each
  profiler::Seconds transfers{0};            // time in which gradients were under way
  std::optional<profiler::DeviceUse> device;
};

// Records the steps of a session from its construction until finish(). Ownership: the session outlives it. Threads: the
// training loop's. Errors: on a device, step_done() and finish() throw what CUDA reports.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;
  virtual void step_done(const StepResult& result) = 0;
  // Ends the recording; to be called once. Waits for the device.
  virtual RecordedSteps finish() = 0;
};

// Makes a recorder by the clock of the host.
std::unique_ptr<StepRecorder> make_host_recorder(Session& session);
// Makes a recorder by events of a CUDA device; in no step the host waits for them.
std::unique_ptr<StepRecorder> make_device_recorder(Session& session, Device device);

}  // namespace ddprun::trainer
