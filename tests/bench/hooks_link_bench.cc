// Communication hooks over a slow link: the time of a training step, the time without a network, and the time in which
// the link transmits its bytes. Two hosts are network namespaces, each with one rank.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/environment.h"
#include "common/error.h"
#include "common/standard_output.h"
#include "tests/bench/launchers.h"
#include "tests/bench/median.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"
#include "tests/support/netns.h"
#include "tests/support/parallel_forms.h"
#include "tests/support/step_records.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

struct Options {
  std::vector<std::string> hooks{"allreduce", "fp16", "bf16",     "int8",          "int8_channel",
                                 "int4",      "topk", "powersgd", "powersgd+fp16", "powersgd+int8"};
  double mbit = 200;
  int rounds = 2;
  int steps = 20;  // measured steps of each run
};

constexpr int warm_up = 5;            // steps
constexpr double batch = 128;         // samples of a step
constexpr double samples = 128 * 10;  // an epoch of equal steps

struct Row {
  std::string hook;
  std::vector<double> link_ms, alone_ms;  // a step over the link, and one of ranks that share memory
  double bytes = 0;

  double transfer_ms(double mbit) const { return bytes * 8 / (mbit * 1e3); }
  double least_ms(double mbit) const { return median(alone_ms) + transfer_ms(mbit); }
};

class Jobs {
 public:
  explicit Jobs(const Options& options) : options_(options) {
    environment_.set("OMP_NUM_THREADS", "1");
    for (const int host : {0, 1}) hosts_.limit(host, fmt::format("{}mbit", options.mbit));
  }

  void add_run(Row& row) {
    const auto alone = run_on_one_host(row.hook), link = run_on_two_hosts(row.hook);
    add_times(alone, row.alone_ms);
    add_times(link, row.link_ms);
    row.bytes = std::accumulate(link.bytes_sent.begin() + warm_up, link.bytes_sent.end(), 0.0) / options_.steps;
  }

 private:
  static void add_times(const testing::StepRecords& records, std::vector<double>& ms) {
    for (std::size_t i = warm_up; i < records.samples_per_s.size(); ++i)
      ms.push_back(1e3 * batch / records.samples_per_s[i]);
  }

  Words job(const std::string& hook, const std::string& backend, const Words& launch) const {
    Words words{beside("ddprun"), "--nproc_per_node=" + std::string(launch.size() > 1 ? "1" : "2")};
    words.insert(words.end(), launch.begin(), launch.end());
    const auto config = testing::write_form_job(folder_.path(), "mlp", {.batch = static_cast<int>(batch)});
    for (const auto& word :
         {config.string(), std::string("--model.hidden=1024 1024"), fmt::format("--data.samples={}", samples),
          "--metrics.file=" + metrics(), "--dist.backend=" + backend, "--parallel.hook=" + hook,
          fmt::format("--train.max_steps={}", warm_up + options_.steps)})
      words.push_back(word);
    if (hook.find("powersgd") != std::string::npos)
      words.insert(words.end(), {"--parallel.start_powerSGD_iter=2", "--parallel.matrix_approximation_rank=4"});
    return words;
  }

  testing::StepRecords run_on_one_host(const std::string& hook) {
    start(job(hook, "shm", {"--standalone"})).wait();
    return testing::read_records(metrics());
  }

  testing::StepRecords run_on_two_hosts(const std::string& hook) {
    const auto words = job(hook, "gloo", {"--nnodes=2", fmt::format("--rdzv_endpoint={}:29400", hosts_.address(0))});
    auto first = start(on(0, words)), second = start(on(1, words));
    first.wait();
    second.wait();
    return testing::read_records(metrics());
  }

  Words on(int host, const Words& words) const {
    auto all = hosts_.enter_isolated(host);
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  Process start(const Words& words) const {
    return Process(words, {.environment = environment_.entries(), .show_errors = true, .own_group = true});
  }
  std::string metrics() const { return (folder_ / "metrics").string(); }

  const Options& options_;
  testing::NetnsHosts hosts_{2};
  const testing::TempDir folder_;
  Environment environment_ = Environment::capture();
};

void print(const Row& row, double mbit, bool json) {
  const double step = median(row.link_ms), least = row.least_ms(mbit);
  if (json)
    fmt::print(R"({{"hook": "{}", "bytes": {:.0f}, "step_ms": {:.2f}, "compute_ms": {:.2f}, "transfer_ms": {:.2f}, )"
               R"("ratio": {:.3f}}})"
               "\n",
               row.hook, row.bytes, step, median(row.alone_ms), row.transfer_ms(mbit), step / least);
  else
    fmt::print("{:<18}{:>12.0f}{:>10.1f}{:>12.1f}{:>13.1f}{:>8.2f}\n", row.hook, row.bytes, step, median(row.alone_ms),
               row.transfer_ms(mbit), step / least);
  flush_standard_output();
}

void run(const Options& options, bool json) {
  for (const auto& why : {testing::NetnsHosts::why_not(), testing::NetnsHosts::why_not_isolated()})
    if (!why.empty()) throw Error(Errc::unsupported, why);
  Jobs jobs(options);
  std::vector<Row> rows;
  for (const auto& hook : options.hooks) rows.push_back({.hook = hook, .link_ms = {}, .alone_ms = {}});
  for (int round = 0; round < options.rounds; ++round)  // in turn: a busy moment of the machine hits them all
    for (Row& row : rows) jobs.add_run(row);
  if (!json)
    fmt::print("{:<18}{:>12}{:>10}{:>12}{:>13}{:>8}\n", "hook", "bytes sent", "step ms", "compute ms", "transfer ms",
               "ratio");
  for (const Row& row : rows) print(row, options.mbit, json);
}

}  // namespace

Run hooks_link_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "MLP 784-1024-1024-10, 64 samples a rank, one rank on each of two hosts, which are network namespaces (root).\n"
      "Medians of the steps of all rounds. compute: a step of the same job whose ranks share memory, with the hook's "
      "own\n"
      "work. transfer: bytes that a rank sends, divided by the bandwidth. ratio: step / (compute + transfer).");
  subcommand.add_option("--hook", options->hooks, "hooks, each a row")->delimiter(',');
  subcommand.add_option("--mbit", options->mbit, "bandwidth of the link, Mbit/s")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--rounds", options->rounds, "runs of each row")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--steps", options->steps, "optimizer steps measured in each run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
