// Every form of parallel training beside one process and beside DDP, each as ddprun runs it: its losses, the memory and
// the traffic that it costs, and the time of a step.
#include <algorithm>
#include <filesystem>
#include <map>
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
#include "tests/support/parallel_forms.h"
#include "tests/support/step_records.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

using testing::ParallelForm;
using testing::StepRecords;

struct Options {
  std::vector<std::string> forms;  // empty: all
  int rounds = 3;
  int steps = 30;  // measured steps of each run
  testing::FormJobSize size{.width = 128, .context = 64, .hidden = 1024, .batch = 8};
};

constexpr int compared_steps = 50;
constexpr int warm_up = 10;        // steps
constexpr int counted_steps = 10;  // bytes: a mean of these, after the warm-up; local SGD averages every 5 steps

struct Row {
  ParallelForm form;
  double difference_10 = 0, difference_50 = 0;
  testing::RecordedMemory memory;
  double bytes_sent = 0;
  std::vector<double> step_ms;
};

class Jobs {
 public:
  explicit Jobs(const testing::FormJobSize& size) : size_(size) { environment_.set("OMP_NUM_THREADS", "1"); }

  // Runs the job of a form to its end.
  StepRecords run(const ParallelForm& form, const Words& more) {
    const auto metrics = (folder_ / "metrics").string();
    Words words{beside("ddprun"), "--standalone", fmt::format("--nproc_per_node={}", form.ranks),
                testing::write_form_job(folder_.path(), form.model, size_).string(), "--metrics.file=" + metrics};
    for (const auto& each : form.overrides) words.push_back("--" + each);
    words.insert(words.end(), more.begin(), more.end());
    Process(words, {.environment = environment_.entries(), .show_errors = true}).wait();
    return testing::read_records(metrics);
  }

  // Returns the losses of one process.
  const std::vector<double>& expected(const std::string& model) {
    auto& losses = expected_[model];
    if (losses.empty()) losses = run({.name = "one process", .model = model, .overrides = {}}, losses_of_sgd()).losses;
    return losses;
  }

  static Words losses_of_sgd() { return {fmt::format("--train.max_steps={}", compared_steps)}; }

 private:
  const testing::FormJobSize size_;
  const testing::TempDir folder_;
  Environment environment_ = Environment::capture();
  std::map<std::string, std::vector<double>> expected_;
};

// Measures what does not depend on the machine's load.
Row compare(Jobs& jobs, const ParallelForm& form) {
  Row row{.form = form};
  const auto losses = jobs.run(form, Jobs::losses_of_sgd()).losses;
  row.difference_10 = testing::largest_difference(jobs.expected(form.model), losses, 10);
  row.difference_50 = testing::largest_difference(jobs.expected(form.model), losses, compared_steps);
  const auto records = jobs.run(form, {"--optim.name=adam", "--train.memory_report=true", "--dist.backend=gloo",
                                       fmt::format("--train.max_steps={}", warm_up + counted_steps)});
  row.memory = records.memory;
  const auto& sent = records.bytes_sent;
  row.bytes_sent = std::accumulate(sent.begin() + warm_up, sent.end(), 0.0) / counted_steps;
  return row;
}

void add_times(Jobs& jobs, Row& row, const Options& options) {
  const auto records = jobs.run(row.form, {"--optim.name=adam", "--optim.lr=0.001",
                                           fmt::format("--train.max_steps={}", warm_up + options.steps)});
  for (std::size_t i = warm_up; i < records.samples_per_s.size(); ++i)
    row.step_ms.push_back(1e3 * options.size.batch / records.samples_per_s[i]);
}

// Returns the row of DDP with the same model.
const Row& reference_of(const Row& row, const std::vector<Row>& rows) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
    return other.form.model == row.form.model && other.form.name.starts_with("ddp");
  });
  return *found;
}

void print_head() {
  fmt::print("{:<28}{:>6}{:>10}{:>10}{:>12}{:>8}{:>8}{:>8}{:>12}{:>9}{:>8}\n", "form", "ranks", "W1 of 10", "W1 of 50",
             "params MiB", "grads", "optim", "activ", "bytes sent", "step ms", "x ddp");
}

void print(const Row& row, const std::vector<Row>& rows, bool json) {
  const auto mib = [](double bytes) { return bytes / (1 << 20); };
  const double step = median(row.step_ms), ddp = median(reference_of(row, rows).step_ms);
  const auto& memory = row.memory;
  if (json) {
    fmt::print(R"({{"form": "{}", "ranks": {}, "exact": {}, "difference_10": {:.2e}, "difference_50": {:.2e}, )"
               R"("parameter_bytes": {:.0f}, "gradient_bytes": {:.0f}, "optimizer_bytes": {:.0f}, )"
               R"("activation_bytes": {:.0f}, "bytes_sent": {:.0f}, "step_ms": {:.3f}, "of_ddp": {:.3f}}})"
               "\n",
               row.form.name, row.form.ranks, row.form.exact, row.difference_10, row.difference_50, memory.parameters,
               memory.gradients, memory.optimizer, memory.activations, row.bytes_sent, step, ddp > 0 ? step / ddp : 0);
  } else {
    const auto activations = row.form.threads ? "-" : fmt::format("{:.2f}", mib(memory.activations));
    fmt::print("{:<28}{:>6}{:>10.1e}{:>10.1e}{:>12.2f}{:>8.2f}{:>8.2f}{:>8}{:>12.0f}", row.form.name, row.form.ranks,
               row.difference_10, row.difference_50, mib(memory.parameters), mib(memory.gradients),
               mib(memory.optimizer), activations, row.bytes_sent);
    step > 0 ? fmt::print("{:>9.2f}{:>8.2f}\n", step, step / ddp) : fmt::print("\n");
  }
  flush_standard_output();
}

// Returns the requested forms; each with DDP of its model, which its time is compared with.
std::vector<ParallelForm> chosen(const Options& options) {
  const auto all = testing::parallel_forms();
  if (options.forms.empty()) return all;
  const auto asked = [&](const ParallelForm& form) {
    return std::find(options.forms.begin(), options.forms.end(), form.name) != options.forms.end();
  };
  for (const auto& name : options.forms)
    if (std::none_of(all.begin(), all.end(), [&](const auto& form) { return form.name == name; }))
      throw make_error(Errc::usage, "--form: there is no form '{}'", name);
  std::vector<ParallelForm> found;
  for (const auto& form : all) {
    const bool compared = std::any_of(all.begin(), all.end(), [&](const ParallelForm& other) {
      return asked(other) && other.model == form.model && form.name.starts_with("ddp");
    });
    if (asked(form) || compared) found.push_back(form);
  }
  return found;
}

void run(const Options& options, bool json) {
  Jobs jobs(options.size);
  std::vector<Row> rows;
  for (const auto& form : chosen(options)) rows.push_back(compare(jobs, form));
  for (int round = 0; round < options.rounds; ++round)  // in turn: a busy moment of the machine hits them all
    for (Row& row : rows) add_times(jobs, row, options);
  if (!json) print_head();
  for (const Row& row : rows) print(row, rows, json);
}

}  // namespace

Run parallel_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "GPT of 4 blocks of width 128 on 8 samples of 64 tokens a step, or an MLP, or a CNN with batch norm; one thread\n"
      "a rank or device. W1: the largest relative difference from the losses of one process with the same global\n"
      "batch, SGD, over shared memory. Memory: of the rank that has most, with Adam; activations of other threads are\n"
      "not counted (-). Bytes: sent by rank 0 in a step over Gloo. Times: Adam, medians of the steps of all rounds; x\n"
      "ddp: beside DDP of the same model. Measure times on a quiet machine.");
  subcommand.add_option("--form", options->forms, "forms, each a row (default: all)")->delimiter(',');
  subcommand.add_option("--rounds", options->rounds, "runs of each row for its time; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  subcommand.add_option("--steps", options->steps, "optimizer steps measured in each run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--width", options->size.width, "features of a token")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--context", options->size.context, "tokens of a sample")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
