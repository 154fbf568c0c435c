#include "worker/profiler/device_step.h"

#include <algorithm>
#include <utility>

#include "worker/profiler/intervals.h"
#include "worker/profiler/recorder.h"

namespace ddprun::profiler {
namespace {

// Goes through a log once; everything between two points of the compute queue belongs to a phase or to a wait.
class Reading {
 public:
  Reading(const DeviceLog& log, const std::vector<Time>& times) : log_(log), times_(times) {}

  DeviceStep read() {
    for (const LogEntry& entry : log_.entries()) take(entry);
    take_operations();
    for (const LoggedTransfer& transfer : log_.transfers()) take(transfer);
    const auto under_way = merged(std::move(transfers_));
    step_.communication = length(under_way);
    step_.hidden = step_.communication - common(under_way, merged(std::move(waits_)));
    return std::move(step_);
  }

 private:
  void take(const LogEntry& entry) {
    const Time now = std::max(before_, times_[entry.at.number]);
    const Time passed = now - before_;
    switch (entry.what) {
      case LogEntry::What::step_begins:
        begin_phase(now, entry.at.host);
        break;
      case LogEntry::What::operation_begins:
        add(passed, now - entry.at.host);
        on_device_.begin(entry.kind, entry.name, entry.module, now);
        on_device_.add_flops(entry.flops);
        on_host_.begin(entry.kind, entry.name, entry.module, entry.at.host);
        if (depth_++ == 0) queued_from_ = entry.at.host;
        break;
      case LogEntry::What::operation_ends:
        add(passed, now - entry.at.host);
        on_device_.end(now);
        on_host_.end(entry.at.host);
        if (--depth_ == 0) queueing_ += entry.at.host - queued_from_;
        break;
      case LogEntry::What::phase_ends:
        add(passed, now - entry.at.host);
        end_phase(entry.phase, now, entry.at.host);
        break;
      case LogEntry::What::wait_begins:
        add(passed, now - entry.at.host);
        break;
      case LogEntry::What::wait_ends:
        step_.times.wait += passed;
        waits_.emplace_back(before_, now);
        step_.queues.push_back({.kind = Kind::phase,
                                .name = "exposed communication",
                                .start = before_,
                                .duration = passed,
                                .track = compute_track});
        break;
    }
    before_ = now;
  }

  // Adds to the phase that ends next. late: the time from the host's queueing of its end until the device reached it.
  void add(Time passed, Time late) {
    in_phase_ += passed;
    if (late <= reaction_of_device) paced_ += passed;
  }

  void begin_phase(Time now, Time host) {
    phase_from_ = now;
    phase_from_on_host_ = host;
    in_phase_ = paced_ = queueing_ = Time{0};
  }

  void end_phase(Phase phase, Time now, Time host) {
    const bool uploads = phase == &StepTimes::upload, updates = phase == &StepTimes::optimizer;
    step_.times.*phase += in_phase_;
    if (uploads) step_.copies += in_phase_;
    if (updates || phase == &StepTimes::forward || phase == &StepTimes::backward) step_.paced += paced_;
    step_.queueing += uploads || updates ? host - phase_from_on_host_ : queueing_;
    const Event event{.kind = Kind::phase, .name = name_of(phase)};
    step_.queues.push_back(event);
    step_.queues.back().start = phase_from_;
    step_.queues.back().duration = now - phase_from_;
    step_.queues.back().track = uploads ? copies_track : compute_track;
    step_.host.push_back(event);
    step_.host.back().start = phase_from_on_host_;
    step_.host.back().duration = host - phase_from_on_host_;
    begin_phase(now, host);
  }

  // Both recorders have the same events in the same order.
  void take_operations() {
    auto on_device = on_device_.take(), on_host = on_host_.take();
    for (std::size_t i = 0; i < on_device.size(); ++i) {
      on_device[i].host = on_host[i].self;
      on_device[i].track = compute_track;
      step_.queues.push_back(std::move(on_device[i]));
      step_.host.push_back(std::move(on_host[i]));
    }
  }

  void take(const LoggedTransfer& transfer) {
    const Time begun = times_[transfer.begun], ended = std::max(begun, times_[transfer.ended]);
    transfers_.emplace_back(begun, ended);
    // Staged collectives overlap: on the one row that they have, each begins when the one before it has ended.
    const Time drawn_from = std::clamp(drawn_until_, begun, ended);
    drawn_until_ = ended;
    step_.queues.push_back({.kind = Kind::communication,
                            .name = transfer.name,
                            .start = drawn_from,
                            .duration = ended - drawn_from,
                            .track = communication_track});
    if (transfer.name != "allreduce" && transfer.name != "reduce_scatter") return;
    step_.reduced.ready.push_back(times_[transfer.ready]);
    step_.reduced.ended.push_back(ended);
  }

  const DeviceLog& log_;
  const std::vector<Time>& times_;
  DeviceStep step_;
  Recorder on_device_, on_host_;
  Time before_{0};       // the compute queue's last point
  Time drawn_until_{0};  // for the communication queue's row
  Time phase_from_{0}, phase_from_on_host_{0};
  Time in_phase_{0}, paced_{0}, queueing_{0};  // those of this phase
  int depth_ = 0;
  Time queued_from_{0};
  Intervals transfers_, waits_;
};

}  // namespace

DeviceStep read_step(const DeviceLog& log, const std::vector<Time>& times) {
  return Reading(log, times).read();
}

}  // namespace ddprun::profiler
