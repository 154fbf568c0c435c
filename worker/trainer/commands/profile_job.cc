#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "worker/comm/collectives.h"
#include "worker/profiler/report.h"
#include "worker/trainer/commands/rank_start.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/report/profiling.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

constexpr std::int64_t default_steps = 20;

// Returns the bytes that the kernel would give to programs now, or the largest number if it does not say.
double available_on_host() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kib = 0;
  for (std::string unit; file >> name >> kib; std::getline(file, unit))
    if (name == "MemAvailable:") return 1024 * kib;
  return std::numeric_limits<double>::infinity();
}

// Returns the samples a second of all ranks, from the median step of the slowest rank, without a recorder.
double measure_rate(Session& session, std::int64_t steps) {
  session.step(false);  // another batch size than before: allocates
  std::vector<double> seconds;
  std::int64_t samples = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto result = session.step(false);
    samples = std::max(samples, result.samples);  // the last step of an epoch may be smaller
    seconds.push_back(result.times.total().count());
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  std::vector<double> median{*middle};
  allreduce(session.group(), median, ReduceOp::max);
  return static_cast<double>(samples) / median[0];
}

TrainConfig with_twice_the_batch(TrainConfig config) {
  config.train.batch_size *= 2;
  config.train.global_batch_size *= 2;
  return config;
}

// Returns the one of the two settings that is given.
std::string batch_setting(const TrainConfig::Train& train) {
  return train.global_batch_size > 0 ? fmt::format("train.global_batch_size = {}", train.global_batch_size)
                                     : fmt::format("train.batch_size = {}", train.batch_size);
}

// Returns how many ranks use this one's device, or host. Devices of a host are told apart only by their numbers.
double ranks_that_share(ProcessGroup& group, Device device) {
  if (device.type == DeviceType::cpu) return group.size();
  const auto places = all_gather_bytes(group, fmt::format("{} {}", local_host_name(), to_string(device)));
  return static_cast<double>(std::ranges::count(places, places[static_cast<std::size_t>(group.rank())]));
}

// Returns whether twice the activations fit beside what is allocated. All ranks may be on one host, and what they have
// cached counts as taken.
bool fits(ProcessGroup& group, Device device, std::size_t activations) {
  const double needed = 2.0 * static_cast<double>(activations) * ranks_that_share(group, device);
  return needed <=
         (device.type == DeviceType::cpu ? available_on_host() : static_cast<double>(available_memory(device)));
}

// Returns why a larger batch is not measured; empty if it can be. The result is the same at all ranks.
std::string why_not_larger(Session& session, const TrainConfig& config, const Datasets& datasets,
                           std::size_t activations) {
  const auto& p = config.parallel;
  if (p.zero > 0 || shards_state(p.ranks) || p.micro_batches > 0)
    return "a state of which each rank or device has a part is trained in one session";
  if (2 * session.step_samples() > datasets.train->size())
    return fmt::format("the training set has {} samples, fewer than a step of twice the batch", datasets.train->size());
  std::vector<double> lacking{fits(session.group(), device_of(*session.state().model), activations) ? 0.0 : 1.0};
  allreduce(session.group(), lacking, ReduceOp::max);
  return lacking[0] > 0 ? "there is no memory for it" : "";
}

struct Profiled {
  profiler::Summary summary;
  std::string no_larger_batch;
};

Profiled profile_steps(Session& session, const TrainConfig& config, const Datasets& datasets, std::int64_t steps) {
  Profiling profiling(session, config.profile.warmup, steps, compute_dtype(config.train));
  std::size_t activations = 0;
  for (bool complete = false; !complete;) {
    const auto result = session.step(false);
    activations = std::max(activations, result.activation_peak);
    complete = profiling.step_done(result);
  }
  Profiled profiled{.summary = profiling.summary(), .no_larger_batch = ""};
  if (!config.profile.trace.empty()) profiling.write_trace(config.profile.trace);
  profiled.summary.samples_per_s = measure_rate(session, steps);
  profiled.no_larger_batch = why_not_larger(session, config, datasets, activations);
  return profiled;
}

// Trains profile.warmup and profile.steps steps of a new model, and some with twice the batch if memory allows; prints
// the profile as a page and writes profile.trace. Leaves no checkpoint and no metrics.
void profile_job(const TrainConfig& config, std::map<std::string, std::string> deciding, const Datasets& datasets,
                 const Trainer::Context& context) {
  if (config.parallel.strategy == "parameter_server")
    throw Error(Errc::usage, "parallel.strategy = parameter_server: profile shows steps that all ranks make together");
  const auto registry = context.plugin ? *context.plugin : plugin::Registry{};
  const auto task = make_task(config, datasets.train->layout(), registry);
  auto state =
      make_train_state(config, std::move(deciding), datasets.train->layout(), *task, 0, registry, context.device);
  const auto steps = config.profile.steps > 0 ? config.profile.steps : default_steps;
  const auto session_of = [&](const TrainConfig& settings) {
    return make_session({.config = settings, .datasets = datasets, .task = *task, .shared = context.shared}, state,
                        *context.group);
  };
  auto session = session_of(config);
  auto [summary, no_larger_batch] = profile_steps(*session, config, datasets, steps);
  session.reset();  // a state has one session at a time
  if (no_larger_batch.empty()) {
    const TrainConfig larger = with_twice_the_batch(config);
    session = session_of(larger);
    summary.larger_batch = profiler::BatchTrial{
        .setting = batch_setting(larger.train), .batch_size = session->batch_size(), .samples_per_s = 0};
    summary.larger_batch->samples_per_s = measure_rate(*session, steps);
  }
  summary.no_larger_batch = no_larger_batch;
  for (const auto& line : profiler::report_of(summary)) context.progress.line(line);
}

int profile(const CommandContext& context) {
  const TrainConfig& config = context.config;
  if (names_cuda_devices(config.parallel))
    throw make_error(Errc::usage, "parallel.devices = {}: profile measures one device so far", config.parallel.devices);
  return run_as_rank(context, "profile", [&](const StartedRank& rank) {
    profile_job(config, settings_that_decide(context.settings), rank.datasets, rank.context);
    check_output(rank.context.progress);
    return exit_success;
  });
}

}  // namespace

Command profile_command() {
  return {.name = "profile",
          .usage = "profile train.cfg [--section.key=value ...]",
          .help =
              "profile trains some steps, as a single process or as one rank of several, and says where their time "
              "went: [profile].\n",
          .run = profile};
}

}  // namespace ddprun::trainer
