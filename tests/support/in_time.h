#pragma once

#include <stdexcept>

// Disturbs jobs that last less than a second while they run.
namespace ddprun::testing {

// The job was done before the test disturbed it.
struct TooLate : std::runtime_error {
  TooLate() : std::runtime_error("the job was done before the test disturbed it") {}
};

// Jobs end within a second, in which a test may wait for a processor or a disk. Calls a scenario, which starts a job
// and disturbs it while it runs, again after it came too late.
template <class Scenario>
void in_time(Scenario scenario) {
  constexpr int most_attempts = 10;
  for (int attempt = 1; attempt < most_attempts; ++attempt) {
    try {
      return scenario();
    } catch (const TooLate&) {
      continue;
    }
  }
  scenario();
}

}  // namespace ddprun::testing
