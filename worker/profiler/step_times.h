#pragma once

#include <chrono>

namespace ddprun::profiler {

using Seconds = std::chrono::duration<double>;

// The time of a step, or of several, on a rank, by what it was spent on.
struct StepTimes {
  Seconds data{0};    // waiting for the loader
  Seconds upload{0};  // for the upload of samples to a device
  Seconds forward{0};
  Seconds backward{0};
  Seconds optimizer{0};
  Seconds start{0};  // starting collectives
  Seconds wait{0};   // waiting for other ranks and the network, while nothing is computed

  Seconds compute() const { return forward + backward + optimizer; }
  Seconds communication() const { return start + wait; }
  // Returns the time that does not depend on other ranks.
  Seconds own() const { return data + upload + compute() + start; }
  Seconds total() const { return own() + wait; }

  StepTimes& operator+=(const StepTimes& other) {
    data += other.data;
    upload += other.upload;
    forward += other.forward;
    backward += other.backward;
    optimizer += other.optimizer;
    start += other.start;
    wait += other.wait;
    return *this;
  }
};

// A part of a step, as the member of StepTimes that has its time.
using Phase = Seconds StepTimes::*;

// Returns a name such as "backward", which lives for ever.
const char* name_of(Phase phase);

}  // namespace ddprun::profiler
