// A training job whose ranks are killed at random: the time from each kill until the other ranks have made the step
// that it interrupted, by phase, beside the time of a step.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/core.h>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/error.h"
#include "common/standard_output.h"
#include "tests/bench/launchers.h"
#include "tests/bench/median.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"
#include "tests/support/free_port.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

namespace json = boost::json;

struct Options {
  std::string model = "cnn";
  std::vector<std::string> backends{"shm", "gloo"};
  std::vector<int> ranks{4, 8};
  int nodes = 1;  // number of agents, all on this host
  int kills = 5;
  int batch = 16;       // batch size of a rank
  int shards = 0;       // train.shards of the whole step
  bool standby = true;  // recovery.standby
  unsigned seed = 1;
};

constexpr std::chrono::seconds time_limit{60};  // limit for one recovery
constexpr int undisturbed_steps = 20;           // steps before the first kill
constexpr int steps_between = 5;                // steps between two recoveries

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The lines of a file that is being written.
class Lines {
 public:
  explicit Lines(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns the lines that were completed since the last call.
  std::vector<json::object> take() {
    std::vector<json::object> records;
    std::ifstream file(path_);
    file.seekg(at_);
    for (std::string line; std::getline(file, line) && !file.eof();) {
      at_ += static_cast<std::streamoff>(line.size()) + 1;
      records.push_back(json::parse(line).as_object());
    }
    return records;
  }

 private:
  const std::filesystem::path path_;
  std::streamoff at_ = 0;
};

// The times from the kill to the ends of the phases, of the slowest rank that was not killed.
struct Phases {
  double noticed = 0, planned = 0, formed = 0, healed = 0, ready = 0, applied = 0;  // ms
  double replacement = 0;  // time until the replacement has made a step
};

class Job {
 public:
  Job(const Options& options, const std::string& backend, int ranks)
      : ranks_(ranks), standbys_(options.standby ? options.nodes : 0), recoveries_(folder_ / "recoveries") {
    write_config(options, backend);
    const auto port = testing::free_port();
    for (int node = 0; node < options.nodes; ++node) agents_.push_back(start(options, node, port));
  }

  // Returns the median time of an undisturbed step, in ms.
  double step_ms() {
    const auto rates = wait_for_steps(undisturbed_steps);
    return 1e3 * static_cast<double>(samples_) / median(rates);
  }

  Phases kill(int rank) {
    wait_for_standbys();
    const auto pid = pid_of(rank);
    const auto began = now_us();
    ::kill(pid, SIGKILL);
    Phases phases;
    const auto since = [began](const json::object& record, const char* key) {
      return static_cast<double>(record.at(key).to_number<std::int64_t>() - began) / 1e3;
    };
    const auto latest = [](double& value, double other) { value = std::max(value, other); };
    const auto deadline = Deadline::in(time_limit);
    for (int left = ranks_; left > 0;) {
      for (const auto& record : recoveries_.take()) {
        --left;
        if (record.at("rank").to_number<int>() == rank) {
          phases.replacement = since(record, "applied_us");
          continue;
        }
        latest(phases.noticed, since(record, "noticed_us"));
        latest(phases.planned, since(record, "planned_us"));
        latest(phases.formed, since(record, "formed_us"));
        latest(phases.healed, since(record, "healed_us"));
        latest(phases.ready, since(record, "ready_us"));
        latest(phases.applied, since(record, "applied_us"));
      }
      wait_a_little(deadline, fmt::format("{} ranks to recover", left));
    }
    wait_for_steps(steps_between);
    return phases;
  }

 private:
  static std::string cnn(std::int64_t samples) {
    return fmt::format("[model]\nname = cnn\n[data]\nname = digits\nsamples = {}\ntest_samples = 100\n", samples);
  }

  // Writes the text on which it trains, too.
  std::string gpt_nano() const {
    std::ofstream text(folder_ / "input.txt");
    for (int i = 0; i < 20'000; ++i) text << i << " squared is " << i * i << ".\n";
    return fmt::format(
        "[model]\nname = gpt\npreset = nano\n[data]\nname = text\ncontext = 128\ndir = {}\n[optim]\nname = adam\n",
        folder_.path().string());
  }

  void write_config(const Options& options, const std::string& backend) {
    samples_ = static_cast<std::int64_t>(options.batch) * ranks_;
    const auto in_folder = [this](const char* name) { return (folder_ / name).string(); };
    std::ofstream(folder_ / "train.cfg")
        << (options.model == "gpt" ? gpt_nano() : cnn(200 * samples_))
        << fmt::format(
               "[train]\nepochs = 1000000\nlog_every = 0\nbatch_size = 0\nglobal_batch_size = {}\n"
               "shards = {}\n"
               "[eval]\nevery_epochs = 0\n[metrics]\nfile = {}\n[recovery]\n"
               "standby = {}\nfile = {}\n[dist]\nbackend = {}\n",
               samples_, options.shards, in_folder("metrics"), options.standby, in_folder("recoveries"), backend);
  }

  Process start(const Options& options, int node, int port) const {
    auto environment = Environment::capture();
    environment.set("OMP_NUM_THREADS", "1");
    environment.set("DDPRUN_BENCH_JOB", folder_.path().string());
    std::vector<std::string> words{beside("ddprun"), fmt::format("--nproc_per_node={}", ranks_ / options.nodes),
                                   fmt::format("--max_restarts={}", options.kills)};
    if (options.nodes == 1)
      words.emplace_back("--standalone");
    else
      words.insert(words.end(),
                   {fmt::format("--nnodes={}", options.nodes), fmt::format("--rdzv_endpoint=127.0.0.1:{}", port),
                    fmt::format("--rdzv_conf=is_host={}", node == 0)});
    words.push_back((folder_ / "train.cfg").string());
    return Process(words, {.environment = environment.entries(), .show_errors = false, .own_group = true});
  }

  pid_t pid_of(int rank) const {
    const auto wanted = '\0' + fmt::format("RANK={}", rank) + '\0';
    for (const pid_t pid : testing::processes_with("DDPRUN_BENCH_JOB=" + folder_.path().string()))
      if (('\0' + testing::proc_text(std::to_string(pid), "environ")).find(wanted) != std::string::npos) return pid;
    throw make_error(Errc::io, "there is no process of rank {}", rank);
  }

  // Waits until each node has a process that stands by.
  void wait_for_standbys() const {
    const auto deadline = Deadline::in(time_limit);
    const auto count = [&] {
      std::ptrdiff_t found = 0;
      for (const pid_t pid : testing::processes_with("DDPRUN_BENCH_JOB=" + folder_.path().string()))
        found += testing::proc_text(std::to_string(pid), "comm") == "ddprun-standby\n";
      return found;
    };
    while (count() < standbys_) wait_a_little(deadline, "a process to stand by");
  }

  // Waits for that many more steps; returns their samples a second.
  std::vector<double> wait_for_steps(int count) {
    std::vector<double> rates;
    const auto deadline = Deadline::in(time_limit);
    Lines metrics(folder_ / "metrics");
    metrics.take();
    while (std::ssize(rates) < count) {
      for (const auto& record : metrics.take())
        if (record.contains("step")) rates.push_back(record.at("samples_per_s").to_number<double>());
      wait_a_little(deadline, "steps");
    }
    return rates;
  }

  static void wait_a_little(const Deadline& deadline, const std::string& what) {
    if (deadline.expired())
      throw make_error(Errc::timeout, "waited {} s for {}: the job has ended, or hangs", time_limit.count(), what);
    ::usleep(1000);
  }

  const int ranks_;
  const int standbys_;
  const testing::TempDir folder_;
  std::int64_t samples_ = 0;  // samples of a step
  Lines recoveries_;
  std::vector<Process> agents_;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

struct Row {
  std::string backend;
  int ranks;
  double step_ms;
  std::vector<Phases> recoveries;

  template <class Value>
  std::vector<double> each(Value value) const {
    std::vector<double> all;
    for (const auto& one : recoveries) all.push_back(value(one));
    return all;
  }
};

Row measure(const Options& options, const std::string& backend, int ranks) {
  Job job(options, backend, ranks);
  Row row{.backend = backend, .ranks = ranks, .step_ms = job.step_ms(), .recoveries = {}};
  std::mt19937 random(options.seed);
  while (std::ssize(row.recoveries) < options.kills)
    row.recoveries.push_back(job.kill(static_cast<int>(random() % static_cast<unsigned>(ranks))));
  return row;
}

void print(const Row& row, bool json) {
  const auto of = [&](auto value) { return median(row.each(value)); };
  const double detect = of([](const Phases& p) { return p.noticed; });
  const double plan = of([](const Phases& p) { return p.planned - p.noticed; });
  const double form = of([](const Phases& p) { return p.formed - p.planned; });
  const double heal = of([](const Phases& p) { return p.healed - p.formed; });
  const double session = of([](const Phases& p) { return p.ready - p.healed; });
  const double replay = of([](const Phases& p) { return p.applied - p.ready; });
  const auto all = row.each([](const Phases& p) { return p.applied; });
  const double replacement = of([](const Phases& p) { return p.replacement; });
  if (json)
    fmt::print(R"({{"backend": "{}", "ranks": {}, "kills": {}, "step_ms": {:.2f}, "detect_ms": {:.2f}, )"
               R"("plan_ms": {:.2f}, "form_ms": {:.2f}, "heal_ms": {:.2f}, "session_ms": {:.2f}, "replay_ms": {:.2f}, )"
               R"("p50_ms": {:.2f}, "p99_ms": {:.2f}, "max_ms": {:.2f}, "replacement_ms": {:.2f}}})"
               "\n",
               row.backend, row.ranks, all.size(), row.step_ms, detect, plan, form, heal, session, replay,
               percentile(all, 0.5), percentile(all, 0.99), percentile(all, 1), replacement);
  else
    fmt::print("{:<8}{:>6}{:>6}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n",
               row.backend, row.ranks, all.size(), row.step_ms, detect, plan, form, heal, session, replay,
               percentile(all, 0.5), percentile(all, 0.99), percentile(all, 1));
  flush_standard_output();
}

void run(const Options& options, bool json) {
  if (!json)
    fmt::print("{:<8}{:>6}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}\n", "backend", "ranks", "kills",
               "step ms", "detect", "plan", "form", "heal", "session", "replay", "p50", "p99", "max");
  for (const int ranks : options.ranks)
    if (ranks % options.nodes != 0)
      throw make_error(Errc::usage, "--ranks = {}: --nodes = {} does not divide it", ranks, options.nodes);
  for (const auto& backend : options.backends)
    for (const int ranks : options.ranks) print(measure(options, backend, ranks), json);
}

}  // namespace

Run recovery_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "The CNN on generated digits, or GPT nano on a text, one thread a rank. Each time a random rank gets SIGKILL.\n"
      "p50, p99, max: from then until the last of the other ranks has made the next step in the group that formed.\n"
      "The phases are medians, from the end of one at the slowest rank to that of the next: detect, until the failure\n"
      "is noticed; plan, until the launcher's decision is there; form, until all, the replacement too, have formed a\n"
      "group; heal, until all stand at the same step; session, until the training is set up; replay, until the step "
      "is\n"
      "made.");
  subcommand.add_option("--model", options->model, "cnn or gpt")
      ->check(CLI::IsMember({"cnn", "gpt"}))
      ->capture_default_str();
  subcommand.add_option("--backend", options->backends, "shm, gloo or hierarchical")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--ranks", options->ranks, "each a row")->delimiter(',')->capture_default_str();
  subcommand.add_option("--nodes", options->nodes, "agents, all on this host, with an equal share of the ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--kills", options->kills, "of each row")->check(CLI::PositiveNumber)->capture_default_str();
  subcommand.add_option("--batch", options->batch, "samples of a rank's step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--shards", options->shards, "train.shards; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  subcommand
      .add_option("--standby", options->standby, "recovery.standby; if true, a kill waits until a process stands by")
      ->capture_default_str();
  subcommand.add_option("--seed", options->seed, "of the choice of ranks")->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
