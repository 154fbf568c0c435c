// Hundreds of jobs under virtual time. A failing seed is printed; DDPRUN_SIM_SEED=<seed> runs that one alone.
#include <exception>

#include <fmt/format.h>

#include "ddprun/common/environment.h"
#include "tests/simulation/simulated_job.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

TEST_CASE("whatever happens, membership keeps its promises and the job comes to an end") {
  constexpr std::uint64_t schedules = 500;
  const auto chosen = ddprun::Environment::capture().get("DDPRUN_SIM_SEED");
  const std::uint64_t first = chosen ? std::stoull(*chosen) : 1;
  const std::uint64_t last = chosen ? first : schedules;
  SimulatedJob::Counts total;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SimulatedJob job(seed);
    try {
      job.run();
    } catch (const std::exception& broken) {
      FAIL(fmt::format("seed {}: {} (replay: DDPRUN_SIM_SEED={})", seed, broken.what(), seed));
    }
    total.proposals += job.counts().proposals;
    total.starts += job.counts().starts;
    total.drops += job.counts().drops;
    total.failures += job.counts().failures;
    total.verdicts += job.counts().verdicts;
    total.successes += job.counts().successes;
  }
  WARN(fmt::format("{} jobs: {} rounds proposed, {} started, {} nodes dropped, {} failures, {} verdicts, {} successes",
                   last - first + 1, total.proposals, total.starts, total.drops, total.failures, total.verdicts,
                   total.successes));
  if (chosen) return;
  // The schedules are worth something only if they reach all of it.
  CHECK(total.starts > 500);
  CHECK(total.proposals > total.starts);
  CHECK(total.drops > 100);
  CHECK(total.failures > 100);
  CHECK(total.successes > 50);
  CHECK(total.verdicts - total.successes > 50);
}
