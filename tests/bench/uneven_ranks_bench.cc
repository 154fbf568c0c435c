// The cost of one slow rank in a job: under data parallelism, with parallel.balance, and with a parameter server. Real
// jobs of ddprun, whose ranks wait for as long as devices of their speed would compute; or two ranks that compute, one
// of them with a part of a core, also as stages of a pipeline.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/environment.h"
#include "common/error.h"
#include "tests/bench/cpu_limit.h"
#include "tests/bench/process.h"
#include "tests/bench/subcommand.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

struct Options {
  int workers = 4;
  int factor = 4;
  int rounds = 3;
  int batch = 16;       // samples of a worker
  int sample_us = 500;  // time at a rank that is not slow
  int steps = 120;      // steps of all workers together
  int staleness = 16;
  double cores = 0;  // cores of the slow worker, which computes; 0: workers wait
  int width = 512;   // width of each computed layer
};
constexpr int layers = 6;

struct Form {
  const char* name;
  const char* settings;
  int servers;  // ranks before the workers
  bool is_pipeline = false;
};
constexpr Form forms[] = {
    {"ddp", "", 0},
    {"ddp, balance", "balance = true\n", 0},
    {"parameter_server", "strategy = parameter_server\n", 1},
};
constexpr Form computing_forms[] = {
    {"ddp", "", 0},
    {"ddp, balance", "balance = true\n", 0},
    {"pipeline", "pipeline = 2\nmicro_batches = 8\nsplit = fc4\n", 0, true},
    {"pipeline, balance", "pipeline = 2\nmicro_batches = 8\nsplit = fc4\nbalance = true\n", 0, true},
};

std::span<const Form> forms_of(const Options& options) {
  return options.cores > 0 ? std::span<const Form>(computing_forms) : std::span<const Form>(forms);
}

struct Figures {
  double even = 0, uneven = 0;  // samples a second: the highest of the rounds
  std::int64_t staleness = 0;   // the largest of any gradient
};

// A job's records: samples a second over the second half of the run, when shares have settled.
double rate_of(const std::filesystem::path& metrics, std::int64_t& staleness) {
  std::ifstream file(metrics);
  std::vector<std::pair<double, double>> steps;  // samples a second; how many steps
  std::int64_t before = 0;
  for (std::string line; std::getline(file, line);) {
    const auto record = boost::json::parse(line).as_object();
    if (!record.contains("step")) continue;
    const auto step = record.at("step").as_int64();
    steps.emplace_back(record.at("samples_per_s").to_number<double>(), static_cast<double>(step - before));
    before = step;
    if (!record.contains("staleness")) continue;
    const auto& counts = record.at("staleness").as_array();
    for (std::size_t age = 0; age < counts.size(); ++age)
      if (counts[age].to_number<std::int64_t>() > 0) staleness = std::max(staleness, static_cast<std::int64_t>(age));
  }
  double count = 0, seconds = 0;
  for (auto each = steps.begin() + std::ssize(steps) / 2; each != steps.end(); ++each) {
    count += each->second;
    seconds += each->second / each->first;
  }
  if (seconds == 0) throw make_error(Errc::internal, "the job has no records");
  return count / seconds;
}

double run_once(const Form& form, const Options& options, bool is_even, std::int64_t& staleness) {
  const testing::TempDir folder;
  const bool asynchronous = form.servers > 0;
  const int samples = options.batch * (asynchronous ? 1 : options.workers);
  const int steps = options.steps * (asynchronous ? options.workers : 1);
  const bool computes = options.cores > 0;
  const auto limit = computes && !is_even ? std::make_unique<CpuLimit>(options.cores) : nullptr;
  const std::string hidden = fmt::format("{}", fmt::join(std::vector<int>(layers, computes ? options.width : 8), " "));
  // A parameter server has two rounds, one before and one after the middle of the run.
  std::ofstream(folder / "train.cfg") << fmt::format(
      "[model]\nplugin = {}\nname = mlp\nhidden = {}\n[data]\nname = random\nshape = {}\nsamples = {}\ntest_samples = "
      "1\n"
      "[train]\ntask = waiting\nglobal_batch_size = {}\nmax_steps = {}\nepochs = 1000\nlog_every = 0\n"
      "[eval]\nevery_epochs = 0\n[optim]\nname = sgd\nlr = 0.001\n[metrics]\nfile = {}\n"
      "[waiting]\nsample_us = {}\nslow_us = {}\nslow_rank = {}\ncontrol_group = {}\n[parallel]\n{}{}",
      UNEVEN_RANKS_PLUGIN, hidden, options.width, samples * steps, samples, steps, (folder / "metrics").string(),
      computes ? 0 : options.sample_us, computes ? 0 : options.sample_us * (is_even ? 1 : options.factor),
      form.servers + options.workers - 1, limit ? limit->processes().string() : "", form.settings,
      asynchronous ? fmt::format("staleness = {}\nround = {}\n", options.staleness, steps / 2) : "");
  const auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  auto environment = Environment::capture();
  environment.set("OMP_NUM_THREADS", "1");
  Process({(programs / "ddprun").string(), "--standalone",
           fmt::format("--nproc_per_node={}", form.servers + options.workers), (folder / "train.cfg").string()},
          {.environment = environment.entries(), .show_errors = true})
      .wait();
  return rate_of(folder / "metrics", staleness);
}

// The factor by which a step takes longer without waits; for a pipeline, as far as whole layers allow.
double least_cost(const Form& form, const Options& options) {
  const double speed = options.cores > 0 ? options.cores : 1.0 / options.factor;
  if (!form.is_pipeline) return options.workers / (options.workers - 1 + speed);
  double best = layers;
  for (int first = 1; first < layers; ++first) best = std::min(best, std::max<double>(first, (layers - first) / speed));
  return best / (layers / 2.0);
}

void print(bool json, const Form& form, const Options& options, const Figures& figures) {
  const double cost = figures.even / figures.uneven;
  const double least = least_cost(form, options);
  const double factor = options.cores > 0 ? 1 / options.cores : options.factor;
  if (json)
    fmt::print(
        R"({{"form": "{}", "workers": {}, "factor": {:g}, "samples_per_s_even": {:.0f}, "samples_per_s": {:.0f}, )"
        R"("cost": {:.3f}, "least": {:.3f}, "most_staleness": {}}})"
        "\n",
        form.name, options.workers, factor, figures.even, figures.uneven, cost, least, figures.staleness);
  else
    fmt::print("{:<18}{:>8}{:>8g}{:>12.0f}{:>12.0f}{:>8.2f}{:>8.2f}{:>11}\n", form.name, options.workers, factor,
               figures.even, figures.uneven, cost, least, figures.staleness);
}

void run(Options options, bool json) {
  if (options.cores > 0) options.workers = 2;
  const auto all = forms_of(options);
  std::vector<Figures> figures(all.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      auto& found = figures[i];
      found.even = std::max(found.even, run_once(all[i], options, true, found.staleness));
      found.uneven = std::max(found.uneven, run_once(all[i], options, false, found.staleness));
    }
  }
  if (!json)
    fmt::print("{:<18}{:>8}{:>8}{:>12}{:>12}{:>8}{:>8}{:>11}\n", "form", "workers", "factor", "even_1/s", "uneven_1/s",
               "cost", "least", "staleness");
  for (std::size_t i = 0; i < figures.size(); ++i) print(json, all[i], options, figures[i]);
}

}  // namespace

Run uneven_ranks_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "One of the workers takes --factor times as long for a sample as the others. even_1/s and uneven_1/s: samples a\n"
      "second without and with that, over the second half of a run, the best of the rounds; cost: their ratio; least:\n"
      "what it is where no worker ever waits; staleness: the most of a gradient, in steps. Workers wait rather than\n"
      "compute; with --cores two compute, and a control group limits one (root).");
  const auto add = [&](const char* name, int& value, const char* help) {
    subcommand.add_option(name, value, help)->check(CLI::PositiveNumber)->capture_default_str();
  };
  add("--workers", options->workers, "workers, of which the last one is slow");
  add("--factor", options->factor, "how much slower");
  add("--rounds", options->rounds, "runs of each form, with and without the slow worker in turn");
  add("--batch", options->batch, "samples of a worker");
  add("--sample-us", options->sample_us, "microseconds for a sample");
  add("--steps", options->steps, "batches of a worker in each run");
  add("--staleness", options->staleness, "bound for the server of parameters");
  add("--width", options->width, "with --cores: of the layers");
  subcommand.add_option("--cores", options->cores, "cores of the slow worker, such as 0.5; 0: workers wait")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
