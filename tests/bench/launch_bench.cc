// The time from the start of a launcher to its end with idle workers: ddprun and its peers beside bare fork and exec.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/error.h"
#include "common/standard_output.h"
#include "tests/bench/launchers.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

struct Options {
  std::vector<int> workers{2, 8, 32, 128};
  int rounds = 11;
  int budget_s = 50;  // time for the whole run; launchers that take seconds get as many runs as fit
  int timeout_s = 20;
  int load = 0;  // processes beside it that never sleep
  std::string program = "/bin/true";
  std::string torch_python;
};

struct Row {
  Launcher launcher;  // without a flag: the floor, started by this program itself
  std::vector<double> times_ms{};
  int hung = 0;
  std::string failure{};
  double rss_mib = 0;

  bool is_floor() const { return launcher.flag.empty(); }
  double median_ms() const {
    auto sorted = times_ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
  double min_ms() const { return times_ms.empty() ? 0 : *std::min_element(times_ms.begin(), times_ms.end()); }
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void run_floor(Row& row, int workers) {
  const auto start = Clock::now();
  std::vector<Process> processes;
  for (int i = 0; i < workers; ++i) processes.emplace_back(row.launcher.command);
  for (auto& process : processes) process.wait();
  row.times_ms.push_back(ms_since(start));
}

void run_launcher(Row& row, int workers, const Options& options) {
  const auto start = Clock::now();
  Process process(row.launcher.line(workers, {options.program}), {.own_group = true});
  if (!process.ends_before(Deadline::in(seconds(options.timeout_s)))) {
    ++row.hung;
    return;
  }
  const double ms = ms_since(start);
  process.wait();
  row.times_ms.push_back(ms);
}

// Returns the number of "VmHWM: 1234 kB" in a process's status, in MiB; 0 when there is none.
double peak_mib(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

std::string name_of(const std::string& pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + pid + "/comm"), name);
  return name;
}

// Returns the peak of the launcher itself or of a helper of its own, whichever is larger; its workers are left out.
double largest_mib(const std::string& pid, const std::string& worker) {
  double largest = name_of(pid) == worker ? 0 : peak_mib(pid);
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + pid + "/task", gone)) {
    std::ifstream children(task.path() / "children");
    for (std::string child; children >> child;) largest = std::max(largest, largest_mib(child, worker));
  }
  return largest;
}

// The peak is read while its workers sleep: wait4's figure of a child includes this program's own memory.
void measure_memory(Row& row, int workers, const Options& options) {
  Process process(row.launcher.line(workers, {"/bin/sleep", row.launcher.slow ? "1" : "0.3"}), {.own_group = true});
  const auto deadline = Deadline::in(seconds(options.timeout_s));
  while (!process.ends_before(Deadline::in(std::chrono::milliseconds(10))) && !deadline.expired())
    row.rss_mib = std::max(row.rss_mib, largest_mib(std::to_string(process.pid()), "sleep"));
}

std::vector<Row> make_rows(const Options& options) {
  std::vector<Row> rows{{{.name = "fork+exec", .command = {options.program}, .flag = ""}}, {ddprun_launcher()}};
  for (auto& launcher : mpiruns()) rows.push_back({std::move(launcher)});
  for (auto& launcher : torchruns(options.torch_python)) rows.push_back({std::move(launcher)});
  return rows;
}

// The rows are measured in turn, so that a busy moment of the machine affects all of them.
void measure(std::vector<Row>& rows, int workers, const Options& options, Clock::time_point end) {
  for (int round = 0; round < options.rounds; ++round)
    for (auto& row : rows) {
      const auto expected = std::chrono::duration<double, std::milli>(row.launcher.slow ? row.median_ms() : 0);
      const bool in_time = round == 0 || Clock::now() + 2 * expected < end;
      if (!row.failure.empty() || row.hung > 2 || (row.launcher.slow && !in_time)) continue;
      try {
        row.is_floor() ? run_floor(row, workers) : run_launcher(row, workers, options);
        if (round == 0 && !row.is_floor()) measure_memory(row, workers, options);
      } catch (const Error& e) {
        row.failure = e.what();
      }
    }
}

void print(bool json, const Row& row, int workers, const Row& floor) {
  if (!row.failure.empty())
    return static_cast<void>(
        std::fprintf(stderr, "%s is left out: %s\n", row.launcher.name.c_str(), row.failure.c_str()));
  if (json)
    fmt::print(
        "{{\"launcher\": \"{}\", \"workers\": {}, \"runs\": {}, \"hung\": {}, \"wall_ms\": {:.3f}, \"wall_ms_min\": "
        "{:.3f}, \"rss_mib\": {:.2f}, \"floor_ratio\": {:.3f}}}\n",
        row.launcher.name, workers, row.times_ms.size(), row.hung, row.median_ms(), row.min_ms(), row.rss_mib,
        row.median_ms() / floor.median_ms());
  else
    fmt::print("{:<22} {:>7} {:>5} {:>10.2f} {:>10.2f} {:>8.1f} {:>9.2f}x{}\n", row.launcher.name, workers,
               row.times_ms.size(), row.median_ms(), row.min_ms(), row.rss_mib, row.median_ms() / floor.median_ms(),
               row.hung > 0 ? fmt::format("  hung {} times", row.hung) : "");
}

std::vector<Process> start_busy_loops(int count) {
  std::vector<Process> loops;
  for (int i = 0; i < count; ++i) loops.emplace_back(Words{"/bin/sh", "-c", "while :; do :; done"});
  return loops;
}

void run(const Options& options, bool json) {
  const auto busy = start_busy_loops(options.load);
  if (!json)
    fmt::print("{:<22} {:>7} {:>5} {:>10} {:>10} {:>8} {:>10}\n", "launcher", "workers", "runs", "wall_ms", "min_ms",
               "rss_mib", "floor");
  const auto began = Clock::now();
  const auto share = seconds(options.budget_s) / static_cast<double>(options.workers.size());
  for (std::size_t i = 0; i < options.workers.size(); ++i) {
    auto rows = make_rows(options);
    const auto end = began + std::chrono::duration_cast<Clock::duration>(share * static_cast<double>(i + 1));
    measure(rows, options.workers[i], options, end);
    for (const auto& row : rows) print(json, row, options.workers[i], rows.front());
    flush_standard_output();
  }
}

}  // namespace

Run launch_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "From the start of the launcher to its end, the workers doing nothing; medians of runs taken in turn. fork+exec\n"
      "is the floor: the same processes started by nobody in particular. Peers are measured where they are installed:\n"
      "mpirun.openmpi, mpirun.mpich, and PyTorch's torchrun, with its defaults and with a monitor interval of 10 ms.\n"
      "rss_mib: peak memory of the launcher or of a helper it starts, whichever is larger, workers left out. A run\n"
      "beyond --timeout is ended and counted as hung.");
  subcommand.add_option("--workers", options->workers, "processes started at once")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--rounds", options->rounds, "of each row, those apart that take seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--budget", options->budget_s, "seconds for all of it, about")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--timeout", options->timeout_s, "seconds for one run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--load", options->load, "busy loops beside it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  subcommand.add_option("--program", options->program, "what the workers run")->capture_default_str();
  subcommand.add_option("--torch-python", options->torch_python,
                        "the interpreter whose torchrun is measured (default: DDPRUN_TORCH_PYTHON, else python3)");
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
