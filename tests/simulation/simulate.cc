// simulate: runs many schedules, or one of them with a trace.
#include <cstdint>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/exit_code.h"
#include "tests/simulation/sweep.h"

namespace {

using ddprun::testing::SweepOptions;
using ddprun::testing::SweepResult;

// Each thread runs a range of consecutive seeds.
SweepResult sweep_in_parallel(const SweepOptions& all, unsigned threads) {
  const std::uint64_t each = (all.last - all.first) / threads + 1;
  std::vector<std::future<SweepResult>> parts;
  for (std::uint64_t first = all.first; first <= all.last; first += each) {
    SweepOptions part = all;
    part.first = first;
    part.last = std::min(all.last, first + each - 1);
    parts.push_back(std::async(std::launch::async, [part] { return ddprun::testing::sweep(part); }));
  }
  SweepResult result;
  for (auto& part : parts) result.add(part.get());
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs jobs under virtual time, with one schedule of faults per seed.", "simulate"};
  SweepOptions options;
  std::uint64_t schedules = 2000;
  std::optional<std::uint64_t> seed;
  int nodes = 0;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  app.add_option("--schedules", schedules, "number of schedules")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--first", options.first, "the first seed")->capture_default_str();
  app.add_option("--seed", seed, "run this seed only");
  app.add_option("--max_nodes", options.max_nodes, "nodes of the largest jobs")->capture_default_str();
  app.add_option("--nodes", nodes, "nodes of every job, all in one round");
  app.add_option("--threads", threads, "number of threads")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--trace", options.trace, "print every event");
  CLI11_PARSE(app, argc, argv);
  if (seed) {
    options.first = *seed;
    schedules = 1;
  }
  options.last = options.first + schedules - 1;
  options.all_nodes = nodes > 0;
  if (nodes > 0) options.max_nodes = nodes;
  const SweepResult result = sweep_in_parallel(options, options.trace ? 1 : threads);
  fmt::print("{}\n", result.text());
  return result.broken.empty() ? ddprun::exit_success : ddprun::exit_fault;
}
