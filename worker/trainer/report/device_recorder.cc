#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "common/error.h"
#include "worker/comm/operation_timer.h"
#include "worker/profiler/device_log.h"
#include "worker/profiler/device_step.h"
#include "worker/profiler/operation_recorder.h"
#include "worker/tensor/device_marks.h"
#include "worker/trainer/report/step_recorder.h"

namespace ddprun::trainer {
namespace {

using profiler::Point;

void append(std::vector<profiler::Event>& to, const std::vector<profiler::Event>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

class DeviceRecorder final : public StepRecorder, private profiler::OperationListener, private OperationTimer {
 public:
  DeviceRecorder(Session& session, Device device) : session_(session), marks_(device), operations_(*this) {
    recorded_.device.emplace();
    session_.group().time_operations(this);
    session_.listen_to_phases([this](auto phase, auto, auto) { phase ? phase_ends(phase) : step_begins(); });
  }
  ~DeviceRecorder() override { stop_listening(); }
  DeviceRecorder(const DeviceRecorder&) = delete;
  DeviceRecorder& operator=(const DeviceRecorder&) = delete;

  void step_done(const StepResult&) override {
    in_step_ = false;
    if (failure_) throw Error(*failure_);
    started_.clear();
    marks_.end_step();
    ended_.push_back(std::exchange(log_, {}));
    while (const auto times = marks_.take_step()) read(*times);
  }

  RecordedSteps finish() override {
    stop_listening();
    while (const auto times = marks_.await_step()) read(*times);
    return std::move(recorded_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void stop_listening() {
    in_step_ = false;
    session_.listen_to_phases({});
    session_.group().time_operations(nullptr);
  }

  // Nothing is recorded between two steps, as in an evaluation.
  bool records() const { return in_step_ && !failure_; }

  // step_done() throws what CUDA reports here.
  template <class Function>
  void noting_failure(const Function& function) noexcept {
    try {
      function();
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  Point point() {
    const profiler::Time now = Clock::now() - marks_.origin();
    return {.number = marks_.record(), .host = now};
  }

  void step_begins() {
    in_step_ = true;
    if (records()) noting_failure([&] { log_.step_begins(point()); });
  }
  void phase_ends(profiler::Phase phase) {
    if (records()) noting_failure([&] { log_.phase_ended(phase, point()); });
  }

  void begin(profiler::Kind kind, const char* name, const std::string& module) override {
    if (records()) noting_failure([&] { log_.begin(kind, name, module, point()); });
  }
  void add_flops(double flops) override {
    if (records()) log_.add_flops(flops);
  }
  void end() override {
    if (records()) noting_failure([&] { log_.end(point()); });
  }

  Started started(std::string_view kind) noexcept override {
    Started result;
    if (!records()) return result;
    noting_failure([&] {
      const auto ready = marks_.record();
      const auto begun = marks_.reserve(), ended = marks_.reserve();
      result = {.events = {.begun = begun.event, .ended = ended.event}, .number = ++operations_started_};
      started_.emplace(result.number,
                       profiler::LoggedTransfer{
                           .name = std::string(kind), .ready = ready, .begun = begun.number, .ended = ended.number});
    });
    return result;
  }
  void wait_begins() noexcept override {
    if (records()) noting_failure([&] { log_.wait_begins(point()); });
  }
  void finished(std::size_t number) noexcept override {
    if (!records()) return;
    noting_failure([&] { log_.wait_ended(point()); });
    const auto found = started_.find(number);
    if (found == started_.end()) return;
    marks_.confirm(found->second.begun);
    marks_.confirm(found->second.ended);
    log_.transferred(std::move(found->second));
    started_.erase(found);
  }

  void read(const std::vector<profiler::Time>& times) {
    const auto step = profiler::read_step(ended_.front(), times);
    ended_.pop_front();
    recorded_.times += step.times;
    recorded_.transfers += step.communication;
    recorded_.steps.push_back(step.reduced);
    append(recorded_.trace, step.queues);
    append(recorded_.trace, step.host);
    append(recorded_.operations, step.queues);
    auto& use = *recorded_.device;
    use.hidden += step.hidden;
    use.copies += step.copies;
    use.queueing += step.queueing;
    use.paced += step.paced;
  }

  Session& session_;
  DeviceMarks marks_;
  profiler::OperationRecorder operations_;
  bool in_step_ = false;
  profiler::DeviceLog log_;                                  // that of the step under way
  std::map<std::size_t, profiler::LoggedTransfer> started_;  // those that have not finished, by OperationTimer's number
  std::size_t operations_started_ = 0;
  std::deque<profiler::DeviceLog> ended_;  // those of steps that the device may not have done yet
  std::optional<Error> failure_;
  RecordedSteps recorded_;
};

}  // namespace

std::unique_ptr<StepRecorder> make_device_recorder(Session& session, Device device) {
  return std::make_unique<DeviceRecorder>(session, device);
}

}  // namespace ddprun::trainer
