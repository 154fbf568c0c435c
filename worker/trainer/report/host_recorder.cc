#include <chrono>
#include <iterator>
#include <utility>

#include "worker/profiler/operation_recorder.h"
#include "worker/reducer/transfer.h"
#include "worker/trainer/report/step_recorder.h"

namespace ddprun::trainer {
namespace {

using profiler::Kind;

class HostRecorder final : public StepRecorder {
 public:
  explicit HostRecorder(Session& session)
      : session_(session), from_(Clock::now()), operations_([from = from_] { return Clock::now() - from; }) {
    session_.record_transfers(&transfers_);
    session_.listen_to_phases([this](auto phase, auto from, auto to) { add_phase(phase, from, to); });
  }
  ~HostRecorder() override { stop_listening(); }
  HostRecorder(const HostRecorder&) = delete;
  HostRecorder& operator=(const HostRecorder&) = delete;

  void step_done(const StepResult& result) override {
    recorded_.times += result.times;
    profiler::ReducedStep step;
    for (; reductions_ < transfers_.size(); ++reductions_) {
      step.ready.push_back(transfers_[reductions_].start - from_);
      step.ended.push_back(transfers_[reductions_].end - from_);
    }
    recorded_.steps.push_back(std::move(step));
  }

  RecordedSteps finish() override {
    stop_listening();
    recorded_.operations = operations_.take();
    recorded_.trace.insert(recorded_.trace.end(), recorded_.operations.begin(), recorded_.operations.end());
    for (const Transfer& transfer : transfers_)
      recorded_.trace.push_back({.kind = Kind::communication,
                                 .name = "allreduce",
                                 .start = transfer.start - from_,
                                 .duration = transfer.end - transfer.start,
                                 .track = profiler::first_bucket_track + static_cast<int>(transfer.bucket)});
    recorded_.transfers = profiler::covered_by(recorded_.trace, Kind::communication);
    return std::move(recorded_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void stop_listening() {
    session_.listen_to_phases({});
    session_.record_transfers(nullptr);
  }

  void add_phase(profiler::Phase phase, Clock::time_point from, Clock::time_point to) {
    if (phase)
      recorded_.trace.push_back(
          {.kind = Kind::phase, .name = profiler::name_of(phase), .start = from - from_, .duration = to - from});
  }

  Session& session_;
  const Clock::time_point from_;
  profiler::OperationRecorder operations_;
  std::vector<Transfer> transfers_;
  std::size_t reductions_ = 0;  // the number of transfers_ that belong to steps that are done
  RecordedSteps recorded_;
};

}  // namespace

std::unique_ptr<StepRecorder> make_host_recorder(Session& session) {
  return std::make_unique<HostRecorder>(session);
}

}  // namespace ddprun::trainer
