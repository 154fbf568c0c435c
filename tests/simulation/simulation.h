#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "tests/simulation/chance.h"
#include "tests/simulation/referee.h"
#include "tests/simulation/virtual_time.h"

namespace ddprun::testing {

// What all parts of one simulated job share.
struct World {
  World(std::uint64_t seed, bool tell) : chance(seed), referee(time), trace(tell) {}

  // A line of the story, for whoever replays a seed.
  template <class... Args>
  void note(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
    if (!trace) return;
    const std::chrono::duration<double> since = time.now() - began;
    fmt::print("{:10.4f} {:<8} {}\n", since.count(), who, fmt::format(format, std::forward<Args>(args)...));
  }

  VirtualTime time;
  Chance chance;
  Referee referee;
  const bool trace;
  const Time began = time.now();
};

}  // namespace ddprun::testing
