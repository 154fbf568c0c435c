#pragma once

#include <chrono>

namespace ddprun::profiler {

using Seconds = std::chrono::duration<double>;

// Where the time of a step, or of several, went on a rank.
struct StepTimes {
  Seconds data{0};  // waiting for the loader
  Seconds forward{0};
  Seconds backward{0};
  Seconds optimizer{0};
  Seconds start{0};  // starting collectives
  Seconds wait{0};   // for other ranks and the network, while nothing is computed

  Seconds compute() const { return forward + backward + optimizer; }
  Seconds communication() const { return start + wait; }
  // What does not depend on other ranks.
  Seconds own() const { return data + compute() + start; }
  Seconds total() const { return own() + wait; }

  StepTimes& operator+=(const StepTimes& other) {
    data += other.data;
    forward += other.forward;
    backward += other.backward;
    optimizer += other.optimizer;
    start += other.start;
    wait += other.wait;
    return *this;
  }
};

}  // namespace ddprun::profiler
