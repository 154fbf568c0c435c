#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "tests/simulation/invariant_checker.h"
#include "tests/simulation/virtual_time.h"
#include "tests/support/random_source.h"

namespace ddprun::testing {

// The state that all parts of one simulated job share.
struct Simulation {
  Simulation(std::uint64_t seed, bool trace_enabled) : random(seed), checker(time), trace(trace_enabled) {}

  // Prints a line of the trace.
  template <class... Args>
  void note(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
    if (!trace) return;
    const std::chrono::duration<double> since = time.now() - began;
    fmt::print("{:10.4f} {:<8} {}\n", since.count(), who, fmt::format(format, std::forward<Args>(args)...));
  }

  VirtualTime time;
  RandomSource random;
  InvariantChecker checker;
  const bool trace;
  const Time began = time.now();
};

}  // namespace ddprun::testing
