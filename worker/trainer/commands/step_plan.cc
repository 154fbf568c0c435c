#include "ddprun/worker/trainer/commands/step_plan.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include <fmt/format.h>

#include "ddprun/common/standard_output.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/comm/spawn.h"
#include "ddprun/worker/trainer/commands/step_traffic.h"
#include "ddprun/worker/trainer/config/group_settings.h"
#include "ddprun/worker/trainer/session/train_session.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t warm_up_steps = 3;  // they allocate, and make the primitives of oneDNN
constexpr std::size_t fewest_steps = 5;
constexpr std::size_t most_steps = 50;
constexpr Seconds longest{3};

// Returns the number of ranks that have parts of one model.
int ranks_of_model(const TrainConfig& config) {
  return config.parallel.tensor * config.parallel.pipeline;
}
// Returns the number of ranks that have the same samples.
int ranks_of_sample(const TrainConfig& config) {
  return ranks_of_model(config) * config.parallel.context;
}
// Returns the number of neighbours that compute together; a job has one or more such sets.
int ranks_of_replica(const TrainConfig& config) {
  return ranks_of_sample(config) * config.parallel.expert;
}

// Returns the job with a rank's micro-batch as its batch: that part does not depend on the number of other ranks.
TrainConfig with_share_of(const TrainConfig& config, int ranks) {
  TrainConfig share = config;
  share.train.batch_size = batch_sizes(config.train, ranks / ranks_of_sample(config)).micro;
  share.train.global_batch_size = 0;
  return share;
}

// The measures of some steps of a session: the most memory, and the times after the warm-up.
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
  // waiting: factor for the time that is spent waiting for other ranks and the network.
  Seconds median(double waiting) const {
    std::vector<Seconds> all;
    for (const auto& t : std::span(times_).subspan(warm_up())) all.push_back(t.own() + waiting * t.wait);
    const auto middle = all.begin() + std::ssize(all) / 2;
    std::ranges::nth_element(all, middle);
    return *middle;
  }

 private:
  std::size_t warm_up() const { return std::min(warm_up_steps, times_.size() - 1); }
  // Counts the next step as well.
  bool is_enough() const { return times_.size() + 1 >= warm_up_steps + (total_ > longest ? fewest_steps : most_steps); }

  std::size_t peak_ = 0;
  std::vector<StepTimes> times_;
  Seconds total_{0};
};

SharedBytes shared_bytes(const TrainConfig& config, const nn::Module& model, const ParallelForms& forms) {
  const auto ignored =
      forms.pipelined ? forms.pipelined->pipeline().foreign() : parse_names(config.parallel.ignored_parameters);
  const auto is_shared = [&](const std::string& name) { return std::ranges::count(ignored, name) == 0; };
  const auto is_expert = [&](const std::string& name) { return forms.experts && forms.experts->parts().divides(name); };
  SharedBytes bytes;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad() && is_shared(name))
      (is_expert(name) ? bytes.experts : bytes.parameters) += parameter.value().bytes();
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_shared(name)) bytes.buffers += buffer.bytes();
  return bytes;
}

// The bytes sent among the ranks that share samples or experts, whose number does not depend on that of all ranks.
std::size_t sent_within_replica(const ParallelForms& forms, std::size_t steps) {
  std::size_t sent = forms.pipelined ? forms.pipelined->pipeline().bytes_sent() / steps : 0;
  if (forms.context) sent += forms.context->group().bytes() / steps;
  if (forms.experts) sent += forms.experts->group().bytes() / steps;
  if (!forms.tensor) return sent;
  const TensorGroup& group = forms.tensor->group();
  return sent + *bytes_sent_in_step({}, {.parameters = group.bytes() / steps}, 1, group.size());
}

// Returns the memory if parallel.zero divides among more ranks than were measured.
MemoryUse divided_further(MemoryUse use, const TrainConfig::Parallel& p, int measured, int ranks) {
  const auto share = [&](std::size_t bytes) {
    const int to = p.shard_group > 0 ? p.shard_group : ranks, from = p.shard_group > 0 ? to : measured;
    return bytes * static_cast<std::size_t>(from) / static_cast<std::size_t>(to);
  };
  if (p.zero >= 1) use.optimizer = share(use.optimizer);
  if (p.zero >= 2) use.gradients = share(use.gradients);
  if (p.zero >= 3) use.parameters = share(use.parameters);
  return use;
}

std::size_t total(const MemoryUse& use) {
  return use.parameters + use.gradients + use.optimizer + use.activations;
}

// Returns the memory of the rank that has the most.
MemoryUse most(const MemoryUse& own, ProcessGroup& group) {
  std::vector<std::int64_t> mine;
  for (const auto bytes : {own.parameters, own.gradients, own.optimizer, own.activations})
    mine.push_back(static_cast<std::int64_t>(bytes));
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.allgather(span_of(mine), span_of(all), {.blocking = true});
  MemoryUse result = own;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    const auto bytes = [&](std::size_t i) { return static_cast<std::size_t>(all[at + i]); };
    const MemoryUse other{bytes(0), bytes(1), bytes(2), bytes(3), {}};
    if (total(other) > total(result)) result = other;
  }
  return result;
}

// Returns the part of their time that ranks which share processors would take with a processor for each.
double share_of_processors(int ranks) {
  return std::min(1.0, static_cast<double>(std::thread::hardware_concurrency()) / ranks);
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
                .memory = divided_further(most(memory_of(state, measurement.peak()), group), config.parallel,
                                          group.size(), ranks)};
  const auto bytes = shared_bytes(config, *state.model, session.forms());
  const auto micro_batches = micro_batches_of_step(given.train, ranks / ranks_of_sample(config));
  const auto sent_with = [&](const TrainConfig::Parallel& parallel, std::int64_t passes, int all) {
    auto sent = bytes_sent_in_step(parallel, bytes, passes, all / ranks_of_model(config));
    if (sent) *sent += sent_within_replica(session.forms(), static_cast<std::size_t>(state.run.step));
    return sent;
  };
  const auto sent_by = [&](int all) { return sent_with(config.parallel, micro_batches, all); };
  plan.sent = sent_by(ranks);
  plan.time = measurement.median(plan.sent ? ratio(*plan.sent, *sent_by(group.size()))
                                           : ratio(*sent_with({}, 1, ranks), *sent_with({}, 1, group.size()))) *
              share_of_processors(group.size());
  return plan;
}

int measured_ranks(const TrainConfig& config, int ranks) {
  // At least two ranks: a single one would say nothing of the exchange.
  const int processors = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  const int fewest = ranks_of_replica(config);
  return std::max(fewest, std::min(ranks, processors) / fewest * fewest);
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
  const auto datasets = make_datasets(config, settings, registry);
  naming_mesh_key(config.parallel, [&] { return mesh_sizes(mesh_axes(config.parallel), ranks); });
  spawn(measured_ranks(config, ranks), [&](const WorkerEnv& place) {
    const auto world = init_process_group(init_options(config, place));
    const auto measured = measure_plan(config, datasets, world->group(), ranks, registry);
    if (place.rank != 0) return;
    std::string text;
    for (const auto& line : plan_table(measured)) text += line + "\n";
    write_standard_output(text);
  });
}

}  // namespace ddprun::trainer
