#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "ddprun/common/error.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

struct Options {
  std::vector<int> workers{2, 8, 32};
  int rounds = 15;
  std::string program = "/bin/true";
};

struct Figures {
  double median_ms = 0;
  double min_ms = 0;
  double rss_mib = 0;
};

struct Usage {
  double ms = 0;
  double rss_mib = 0;
};

// One command, or, for the floor, as many processes as there are workers.
Usage run_once(const Words& command, int copies) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Process> processes;
  for (int i = 0; i < copies; ++i) processes.emplace_back(command);
  Usage usage;
  for (auto& process : processes) usage.rss_mib = std::max(usage.rss_mib, process.wait());
  usage.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return usage;
}

Figures measure(const Words& command, int copies, int rounds) {
  std::vector<double> times;
  Figures figures;
  for (int i = 0; i < rounds; ++i) {
    const auto usage = run_once(command, copies);
    times.push_back(usage.ms);
    figures.rss_mib = std::max(figures.rss_mib, usage.rss_mib);
  }
  std::sort(times.begin(), times.end());
  figures.median_ms = times[times.size() / 2];
  figures.min_ms = times.front();
  return figures;
}

struct Launcher {
  std::string name;
  Words command;     // without the number of workers
  std::string flag;  // that takes it; empty: this program starts the workers itself
  int rounds = 0;
};

std::vector<Launcher> launchers(const Options& options) {
  std::vector<Launcher> result{{"fork+exec", {options.program}, "", options.rounds}};
  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ddprun";
  result.push_back({"ddprun", {beside.string(), "--standalone", "--no_python"}, "--nproc_per_node", options.rounds});
  // Seconds each: a few rounds tell enough.
  const int few = std::min(options.rounds, 3);
  if (const auto path = find_on_path("mpirun"))
    result.push_back({"mpirun", {*path, "--allow-run-as-root", "--oversubscribe"}, "-n", few});
  if (const auto path = find_on_path("torchrun"))
    result.push_back({"torchrun", {*path, "--standalone", "--no_python"}, "--nproc_per_node", few});
  return result;
}

void print(bool json, const std::string& launcher, int workers, const Figures& figures, const Figures& floor) {
  if (json)
    fmt::print(
        "{{\"launcher\": \"{}\", \"workers\": {}, \"wall_ms\": {:.3f}, \"wall_ms_min\": {:.3f}, \"rss_mib\": "
        "{:.2f}}}\n",
        launcher, workers, figures.median_ms, figures.min_ms, figures.rss_mib);
  else
    fmt::print("{:<10} {:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>7.2f}x\n", launcher, workers, figures.median_ms,
               figures.min_ms, figures.rss_mib, figures.median_ms / floor.median_ms);
}

void run(const Options& options, bool json) {
  if (!json)
    fmt::print("{:<10} {:>7} {:>9} {:>9} {:>9} {:>8}\n", "launcher", "workers", "wall_ms", "min_ms", "rss_mib",
               "floor");
  for (const int workers : options.workers) {
    Figures floor;
    for (const auto& launcher : launchers(options)) {
      const bool is_floor = launcher.flag.empty();
      auto command = launcher.command;
      if (!is_floor) command.insert(command.end(), {launcher.flag, std::to_string(workers), options.program});
      try {
        const auto figures = measure(command, is_floor ? workers : 1, launcher.rounds);
        if (is_floor) floor = figures;
        print(json, launcher.name, workers, figures, floor);
      } catch (const Error& e) {
        std::fprintf(stderr, "%s is left out: %s\n", launcher.name.c_str(), e.what());
      }
      std::fflush(stdout);
    }
  }
}

}  // namespace

Run launch_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "From the start of the launcher to its end, the workers doing nothing. fork+exec is the floor: the same "
      "processes\n"
      "started by nobody in particular; its memory is this program's own, between fork and exec. mpirun and torchrun "
      "are measured where they are on PATH.");
  subcommand.add_option("--workers", options->workers, "processes started at once")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--rounds", options->rounds, "of each row")->check(CLI::PositiveNumber)->capture_default_str();
  subcommand.add_option("--program", options->program, "what the workers run")->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
