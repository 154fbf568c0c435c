#pragma once

#include <algorithm>
#include <cstddef>

#include "launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// Divides the time of a job among its parts: each moment belongs to the part that was entered last. A value; times are
// passed in, and one before an earlier one counts as that.
class TimeAccount {
 public:
  explicit TimeAccount(Milliseconds now) : until_(now) {}

  // The time until now belongs to the present part.
  void pass(Milliseconds now) {
    const auto passed = std::max(Milliseconds(0), now - until_);
    of(part_) += std::chrono::duration<double>(passed).count();
    until_ += passed;
  }
  void enter(Milliseconds now, Part part) {
    pass(now);
    part_ = part;
  }
  // So much of the time of one part was another part's; at most all of it.
  void move(double seconds, Part from, Part to) {
    const double moved = std::clamp(seconds, 0.0, of(from));
    of(from) -= moved;
    of(to) += moved;
  }

  Part part() const { return part_; }
  Milliseconds until() const { return until_; }
  const TimeByPart& seconds() const { return seconds_; }

 private:
  double& of(Part part) { return seconds_.at(static_cast<std::size_t>(part)); }

  Part part_ = Part::startup;
  Milliseconds until_;
  TimeByPart seconds_{};
};

}  // namespace ddprun::dashboard
