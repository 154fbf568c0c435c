#include "ddprun/worker/trainer/step_plan.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include <fmt/format.h>

#include "ddprun/common/standard_output.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/comm/spawn.h"
#include "ddprun/worker/trainer/group_settings.h"
#include "ddprun/worker/trainer/step_traffic.h"
#include "ddprun/worker/trainer/train_session.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t warm_up_steps = 3;  // allocate, and make the primitives of oneDNN
constexpr std::size_t fewest_steps = 5;
constexpr std::size_t most_steps = 50;
constexpr Seconds longest{3};

// A rank's part of the job does not depend on how many others there are.
TrainConfig with_share_of(const TrainConfig& config, int ranks) {
  TrainConfig share = config;
  share.train.batch_size = batch_sizes(config.train, ranks / config.parallel.tensor).micro;
  share.train.global_batch_size = 0;
  return share;
}

// Some steps of a session: the most memory, and the times after the warm-up.
class Measurement {
 public:
  // The ranks agree on the end through the steps themselves: rank 0 asks for it.
  void take(TrainSession& session) {
    const auto available = session.total_steps();
    for (bool stops = false; !stops && session.state().run.step < available;) {
      const auto result = session.step(session.is_first() && is_enough());
      peak_ = std::max(peak_, result.activation_peak);
      total_ += result.times.total();
      times_.push_back(result.times);
      stops = result.stop_requested;
    }
  }
  std::size_t peak() const { return peak_; }
  std::size_t steps() const { return times_.size() - warm_up(); }
  // waiting: factor of the time that other ranks and the network take.
  Seconds median(double waiting) const {
    std::vector<Seconds> all;
    for (const auto& t : std::span(times_).subspan(warm_up())) all.push_back(t.own() + waiting * t.wait);
    const auto middle = all.begin() + std::ssize(all) / 2;
    std::ranges::nth_element(all, middle);
    return *middle;
  }

 private:
  std::size_t warm_up() const { return std::min(warm_up_steps, times_.size() - 1); }
  // With the step that comes.
  bool is_enough() const { return times_.size() + 1 >= warm_up_steps + (total_ > longest ? fewest_steps : most_steps); }

  std::size_t peak_ = 0;
  std::vector<StepTimes> times_;
  Seconds total_{0};
};

SharedBytes shared_bytes(const TrainConfig& config, const nn::Module& model) {
  const auto ignored = parse_names(config.parallel.ignored_parameters);
  const auto is_shared = [&](const std::string& name) { return std::ranges::count(ignored, name) == 0; };
  SharedBytes bytes;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad() && is_shared(name)) bytes.parameters += parameter.value().bytes();
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_shared(name)) bytes.buffers += buffer.bytes();
  return bytes;
}

// Over the ranks that compute layers together. Their number does not depend on that of all ranks.
std::size_t sent_by_layers(const TrainSession& session) {
  if (!session.tensor()) return 0;
  const TensorGroup& group = session.tensor()->group();
  const std::size_t bytes = group.bytes() / static_cast<std::size_t>(session.state().run.step);
  return *bytes_sent_in_step({}, {.parameters = bytes}, 1, group.size());
}

double ratio(std::size_t a, std::size_t b) {
  return b == 0 ? 1 : static_cast<double>(a) / static_cast<double>(b);
}

std::string memory_row(const char* name, std::size_t bytes) {
  return fmt::format("{:<28} {:>14} bytes {:>10.2f} MiB", name, bytes, static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

StepPlan measure_plan(const TrainConfig& given, const Datasets& datasets, ProcessGroup& group, int ranks,
                      const plugin::Registry& registry) {
  const TrainConfig config = ranks == group.size() ? given : with_share_of(given, ranks);
  const auto& layout = datasets.train->layout();
  const auto task = make_task(config, layout, registry);
  auto state = make_train_state(config, {}, layout, *task, 0, registry);
  TrainSession session({.config = config, .datasets = datasets, .task = *task}, state, group);
  Measurement measurement;
  measurement.take(session);
  StepPlan plan{.ranks = ranks,
                .measured_ranks = group.size(),
                .steps = measurement.steps(),
                .memory = memory_of(state, measurement.peak())};
  const auto bytes = shared_bytes(config, *state.model);
  const auto micro_batches = micro_batches_of_step(given.train, ranks);
  const auto sent_with = [&](const TrainConfig::Parallel& parallel, std::int64_t passes, int all) {
    auto sent = bytes_sent_in_step(parallel, bytes, passes, all / config.parallel.tensor);
    if (sent) *sent += sent_by_layers(session);
    return sent;
  };
  const auto sent_by = [&](int all) { return sent_with(config.parallel, micro_batches, all); };
  plan.sent = sent_by(ranks);
  plan.time = measurement.median(plan.sent ? ratio(*plan.sent, *sent_by(group.size()))
                                           : ratio(*sent_with({}, 1, ranks), *sent_with({}, 1, group.size())));
  return plan;
}

std::vector<std::string> plan_table(const StepPlan& plan) {
  return {fmt::format("{:<28} {:>14}", "a step, per rank",
                      fmt::format("{} rank{}", plan.ranks, plan.ranks == 1 ? "" : "s")),
          memory_row("parameters and buffers", plan.memory.parameters),
          memory_row("gradients", plan.memory.gradients),
          memory_row("optimizer state", plan.memory.optimizer),
          memory_row("activations, at the peak", plan.memory.activations),
          plan.sent ? memory_row("sent", *plan.sent)
                    : fmt::format("{:<28} {:>14}", "sent", "not predicted with this parallel.hook"),
          fmt::format("{:<28} {:>14.3f} ms, the median of {} steps with {} rank{}", "time",
                      std::chrono::duration<double, std::milli>(plan.time).count(), plan.steps, plan.measured_ranks,
                      plan.measured_ranks == 1 ? "" : "s")};
}

void plan(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry) {
  if (config.parallel.pipeline > 1)
    throw make_error(Errc::usage, "parallel.pipeline = {}: plan does not count what stages send to each other",
                     config.parallel.pipeline);
  if (config.parallel.strategy == "parameter_server")
    throw Error(Errc::usage, "parallel.strategy = parameter_server: plan is of steps that all ranks make together");
  const auto datasets = make_datasets(config, settings, registry);
  // Two at least: one rank alone would say nothing of the exchange.
  const int processors = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  const int tensor = config.parallel.tensor;
  naming_mesh_key(config.parallel, [&] { return mesh_sizes(mesh_dimensions(config.parallel), ranks); });
  spawn(std::max(tensor, std::min(ranks, processors) / tensor * tensor), [&](const WorkerEnv& place) {
    const auto world = init_process_group(init_options(config, place));
    const auto measured = measure_plan(config, datasets, world->group(), ranks, registry);
    if (place.rank != 0) return;
    std::string text;
    for (const auto& line : plan_table(measured)) text += line + "\n";
    write_standard_output(text);
  });
}

}  // namespace ddprun::trainer
