#pragma once

#include <chrono>
#include <utility>

#include "worker/trainer/session/parallel_forms.h"
#include "worker/trainer/session/session.h"

namespace ddprun::trainer {

// Measures the phases of a step, one after the other; communication within a phase is counted as such.
//
// Ownership: the constructor's arguments outlive this object. Threads: one at a time.
class PhaseTimer {
 public:
  // listener: may be empty.
  PhaseTimer(const ParallelForms& forms, const Session::PhaseListener& listener, StepTimes& times)
      : forms_(forms),
        listener_(listener),
        times_(times),
        waited_(forms.waited()),
        starting_(forms.parallelism.starting()) {
    if (listener_) listener_(nullptr, from_, from_);
  }

  void end(Seconds StepTimes::*phase) {
    const auto now_waited = forms_.waited(), now_starting = forms_.parallelism.starting();
    const Seconds waited = now_waited - std::exchange(waited_, now_waited);
    const Seconds starting = now_starting - std::exchange(starting_, now_starting);
    const auto now = Clock::now();
    const auto from = std::exchange(from_, now);
    times_.*phase += now - from - waited - starting;
    times_.wait += waited;
    times_.start += starting;
    if (listener_) listener_(phase, from, now);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const ParallelForms& forms_;
  const Session::PhaseListener& listener_;
  StepTimes& times_;
  std::chrono::nanoseconds waited_;
  std::chrono::nanoseconds starting_;
  Clock::time_point from_ = Clock::now();
};

}  // namespace ddprun::trainer
