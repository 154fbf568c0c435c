// A training job whose ranks are killed or stopped at random: the time from each loss until the other ranks have made
// the step that it interrupted, by phase, beside the time of a step.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/standard_output.h"
#include "tests/bench/median.h"
#include "tests/bench/recovery/recovery_job.h"
#include "tests/bench/subcommand.h"
#include "tests/support/netns.h"

namespace ddprun::bench {
namespace {

struct Options {
  RecoveryJobOptions job;
  int hosts = 0;
  double delay_ms = 0;
  double state_bytes = 0;
  std::vector<std::string> backends;
  std::vector<int> ranks{4, 8};
  unsigned seed = 1;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"max", 1}};

double load() {
  double value = 0;
  ::getloadavg(&value, 1);
  return value;
}

struct Row {
  std::string backend;
  int ranks = 0;
  double load = 0;  // before the run
  double step_ms = 0;
  std::size_t state_bytes = 0;  // 0: not asked for
  double raw_rate = 0;          // bytes a second over one connection, before or after the job, the higher one
  std::int64_t lost_steps = 0;
  std::vector<RecoveryPhases> recoveries = {};

  template <class Value>
  std::vector<double> each(Value value) const {
    std::vector<double> all;
    for (const auto& one : recoveries) all.push_back(value(one));
    return all;
  }
  std::vector<double> phase(std::size_t i) const {
    return each([i](const RecoveryPhases& one) { return one.ms[i]; });
  }
  std::vector<double> totals() const {
    return each([](const RecoveryPhases& one) { return one.total_ms; });
  }
  double replacement_ms() const {
    return median(each([](const RecoveryPhases& one) { return one.replacement_ms; }));
  }
  // Bytes a second with which the newcomers got the state.
  double heal_rate() const {
    const double ms = median(each([](const RecoveryPhases& one) { return one.copy_ms; }));
    return 1e3 * static_cast<double>(state_bytes) / ms;
  }
};

Row measure(const Options& options, const std::string& backend, int ranks) {
  RecoveryJob job(options.job, backend, ranks);
  Row row{.backend = backend, .ranks = ranks, .load = load(), .state_bytes = job.state_bytes()};
  if (row.state_bytes > 0) row.raw_rate = job.raw_rate();
  job.start();
  row.step_ms = median(job.undisturbed_steps());
  std::mt19937 random(options.seed);
  while (std::ssize(row.recoveries) < options.job.kills)
    row.recoveries.push_back(job.lose(static_cast<int>(random() % static_cast<unsigned>(ranks))));
  job.stop();
  row.lost_steps = job.lost_steps();
  if (row.state_bytes > 0) row.raw_rate = std::max(row.raw_rate, job.raw_rate());
  return row;
}

std::string json_of(const std::vector<double>& values) {
  std::string text;
  for (const auto& [name, share] : quantiles)
    text += fmt::format(R"({}"{}": {:.2f})", text.empty() ? "" : ", ", name, percentile(values, share));
  return "{" + text + "}";
}

void print_json(const Row& row) {
  fmt::print(R"({{"backend": "{}", "ranks": {}, "kills": {}, "load": {:.2f}, "step_ms": {:.2f})", row.backend,
             row.ranks, row.recoveries.size(), row.load, row.step_ms);
  for (std::size_t i = 0; i < phase_names.size(); ++i)
    fmt::print(R"(, "{}_ms": {})", phase_names[i], json_of(row.phase(i)));
  fmt::print(R"(, "total_ms": {}, "each_ms": [{:.2f}], "replacement_ms": {:.2f}, "lost_steps": {})",
             json_of(row.totals()), fmt::join(row.totals(), ", "), row.replacement_ms(), row.lost_steps);
  if (row.state_bytes > 0)
    fmt::print(R"(, "state_bytes": {}, "heal_bytes_per_s": {:.0f}, "raw_bytes_per_s": {:.0f})", row.state_bytes,
               row.heal_rate(), row.raw_rate);
  fmt::print("}}\n");
}

void print_header() {
  fmt::print("{:<13}{:>6}{:>6}{:>6}{:>9}  {:<4}", "backend", "ranks", "kills", "load", "step ms", "");
  for (const auto* name : phase_names) fmt::print("{:>9}", name);
  fmt::print("{:>10}\n", "in all");
}

void print_table(const Row& row) {
  for (const auto& [name, share] : quantiles) {
    if (share == 0.5)
      fmt::print("{:<13}{:>6}{:>6}{:>6.1f}{:>9.2f}", row.backend, row.ranks, row.recoveries.size(), row.load,
                 row.step_ms);
    else
      fmt::print("{:<40}", "");
    fmt::print("  {:<4}", name);
    for (std::size_t i = 0; i < phase_names.size(); ++i) fmt::print("{:>9.2f}", percentile(row.phase(i), share));
    fmt::print("{:>10.2f}\n", percentile(row.totals(), share));
  }
  if (row.state_bytes > 0)
    fmt::print("{:<13}a state of {:.1f} MB, at {:.0f} MB/s (p50); one connection: {:.0f} MB/s; ratio {:.2f}\n", "",
               static_cast<double>(row.state_bytes) / 1e6, row.heal_rate() / 1e6, row.raw_rate / 1e6,
               row.heal_rate() / row.raw_rate);
}

void check(const Options& options) {
  if (options.hosts > 0)
    for (const auto& why : {testing::NetnsHosts::why_not(), testing::NetnsHosts::why_not_isolated()})
      if (!why.empty()) throw make_error(Errc::usage, "--hosts = {}: {}", options.hosts, why);
  if (options.delay_ms > 0 && options.hosts < 2)
    throw make_error(Errc::usage, "--delay = {} ms: it needs --hosts = 2 or more", options.delay_ms);
  if (options.hosts > 1 && std::ranges::count(options.backends, "shm") > 0)
    throw make_error(Errc::usage, "--backend = shm: ranks on {} hosts share no memory", options.hosts);
  for (const int ranks : options.ranks)
    if (ranks < 2 || ranks % options.job.nodes != 0)
      throw make_error(Errc::usage, "--ranks = {}: give 2 or more, and a multiple of the number of agents ({})", ranks,
                       options.job.nodes);
}

void run(Options options, bool json) {
  if (options.backends.empty())
    options.backends = options.hosts > 0 ? std::vector<std::string>{"gloo"} : std::vector<std::string>{"shm", "gloo"};
  if (options.hosts > 0) options.job.nodes = options.hosts;
  options.job.on_hosts = options.hosts > 0;
  options.job.delay = std::chrono::nanoseconds(static_cast<std::int64_t>(options.delay_ms * 1e6));
  options.job.state_bytes = static_cast<std::size_t>(options.state_bytes);
  check(options);
  if (!json) print_header();
  for (const auto& backend : options.backends)
    for (const int ranks : options.ranks) {
      const auto row = measure(options, backend, ranks);
      json ? print_json(row) : print_table(row);
      flush_standard_output();
    }
}

void add_job_options(CLI::App& subcommand, Options& options) {
  auto& job = options.job;
  auto* model = subcommand.add_option("--model", job.model, "cnn or gpt")
                    ->check(CLI::IsMember({"cnn", "gpt"}))
                    ->capture_default_str();
  subcommand
      .add_option("--state", options.state_bytes,
                  "size of parameters and the optimizer's state, such as 1.5GB: an MLP with Adam in place of --model")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}))
      ->check(CLI::Range(1e4, 1e12))
      ->excludes(model);
  subcommand.add_option("--data", job.data, "folder with MNIST's files, for the CNN in place of generated digits")
      ->check(CLI::ExistingDirectory);
  subcommand.add_option("--kills", job.kills, "of each row")->check(CLI::PositiveNumber)->capture_default_str();
  subcommand.add_flag("--freeze", job.freezes,
                      "SIGSTOP in place of SIGKILL: ranks are lost after dist.freeze_bound (1 s)");
  subcommand.add_option("--steps", job.undisturbed_steps, "before the first kill")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--batch", job.batch, "samples of a rank's step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--shards", job.shards, "train.shards; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  subcommand.add_option("--standby", job.standby, "recovery.standby; if true, a kill waits until a process stands by")
      ->capture_default_str();
}

void add_host_options(CLI::App& subcommand, Options& options) {
  auto* nodes =
      subcommand.add_option("--nodes", options.job.nodes, "agents, all on this host, with an equal share of the ranks")
          ->check(CLI::PositiveNumber)
          ->capture_default_str();
  subcommand
      .add_option("--hosts", options.hosts,
                  "in place of --nodes: agents on hosts of their own, which are network namespaces; needs root")
      ->check(CLI::PositiveNumber)
      ->excludes(nodes);
  subcommand
      .add_option("--delay", options.delay_ms,
                  "between two hosts, one way, such as 1ms or 500us; a round trip takes twice as long")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"us", 1e-3}, {"ms", 1.0}, {"s", 1e3}}))
      ->check(CLI::PositiveNumber);
}

}  // namespace

Run recovery_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "The CNN on generated digits, or GPT nano on a text, one thread a rank. Each time a random rank gets SIGKILL.\n"
      "In all: from then until the last of the other ranks has made the next step in the group that formed.\n"
      "The phases are from the end of one at the slowest rank to that of the next: detect, until the failure is\n"
      "noticed; plan, until the launcher's decision is there; form, until all, the replacement too, have formed a\n"
      "group; heal, until all stand at the same step; session, until the training is set up; replay, until the step\n"
      "is made. With --state there is a line with the rate at which the replacement got the state, beside that of one\n"
      "TCP connection which nothing disturbs, before or after the job, over the same network.");
  subcommand.add_option("--backend", options->backends, "shm, gloo or hierarchical; shm,gloo, with --hosts gloo")
      ->delimiter(',');
  subcommand.add_option("--ranks", options->ranks, "each a row")->delimiter(',')->capture_default_str();
  add_job_options(subcommand, *options);
  add_host_options(subcommand, *options);
  subcommand.add_option("--seed", options->seed, "of the choice of ranks")->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
