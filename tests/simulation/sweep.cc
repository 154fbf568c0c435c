#include "tests/simulation/sweep.h"

#include <exception>

#include <fmt/format.h>

#include "tests/simulation/simulated_job.h"

namespace ddprun::testing {

void SweepResult::add(const SweepResult& other) {
  schedules += other.schedules;
  counts.add(other.counts);
  broken.insert(broken.end(), other.broken.begin(), other.broken.end());
}

std::string SweepResult::text() const {
  std::string text = fmt::format(
      "{} schedules: {} rounds proposed, {} started, {} nodes dropped, {} failures, {} job results ({} successes), {} "
      "servers started by agents, {} sessions lost and redialled, {} superseded, {} workers replaced, {} keys read, {} "
      "times without a server, {} rounds resumed, {} that lost and {} that gained nodes while they ran, {} with "
      "another store, {} nodes left",
      schedules, counts.proposals, counts.starts, counts.drops, counts.failures, counts.results, counts.successes,
      counts.servers, counts.rejoins, counts.superseded, counts.replaced, counts.reads, counts.kept, counts.resumed,
      counts.lost, counts.gained, counts.moved, counts.left);
  for (const auto& line : broken) text += "\n" + line;
  return text;
}

SweepResult sweep(const SweepOptions& options) {
  SweepResult result;
  for (std::uint64_t seed = options.first; seed <= options.last; ++seed) {
    SimulatedJob job(
        {.seed = seed, .max_nodes = options.max_nodes, .all_nodes = options.all_nodes, .trace = options.trace});
    try {
      job.run();
    } catch (const std::exception& broken) {
      result.broken.push_back(
          fmt::format("seed {}: {}; replay: build/tests/simulate --seed {}{} --trace", seed, broken.what(), seed,
                      options.max_nodes == SweepOptions{}.max_nodes
                          ? ""
                          : fmt::format(" {} {}", options.all_nodes ? "--nodes" : "--max_nodes", options.max_nodes)));
    }
    ++result.schedules;
    result.counts.add(job.counts());
  }
  return result;
}

}  // namespace ddprun::testing
