#include "worker/trainer/commands/step_plan.h"

#include <algorithm>
#include <bit>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "common/byte_text.h"
#include "common/error.h"
#include "common/log.h"
#include "common/rounding.h"
#include "common/standard_output.h"
#include "worker/reducer/shard_tree.h"
#include "worker/trainer/commands/free_memory.h"
#include "worker/trainer/commands/measured_step.h"
#include "worker/trainer/commands/pipeline_bubble.h"
#include "worker/trainer/commands/small_job.h"
#include "worker/trainer/commands/step_table.h"
#include "worker/trainer/commands/step_traffic.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

// Returns the part of their time that ranks which share processors would take with a processor for each.
double share_of_processors(int ranks) {
  return std::min(1.0, static_cast<double>(std::thread::hardware_concurrency()) / ranks);
}

double ratio(double a, double b) {
  return b == 0 ? 1 : a / b;
}

// The bytes of an all-reduce of this many ranks, where those of the job's hook are not known.
double bytes_of_average(const TrainConfig& config, const RankUse& use, int ranks) {
  const SharedBytes bytes{.parameters = static_cast<std::size_t>(use.shared_parameters)};
  return static_cast<double>(*bytes_sent_in_step({}, bytes, 1, ranks / ranks_of_model(config.parallel.ranks)));
}

double waiting_ratio(const StepPlan& plan, const TrainConfig& config, const ComputedStep& small_step,
                     const SmallJob& small) {
  if (plan.sent && small_step.sent)
    return ratio(static_cast<double>(*plan.sent), static_cast<double>(*small_step.sent));
  return ratio(bytes_of_average(config, plan.use, plan.ranks),
               bytes_of_average(small.config, small_step.use, small.ranks));
}

// Stages of a pipeline wait in its bubble. If they share processors, one computes while another waits.
double bubble_factor(const TrainConfig& config, const SmallJob& small) {
  const bool is_in_measure = small.config.parallel.ranks.on("pipeline") == config.parallel.ranks.on("pipeline");
  const bool share = small.ranks > static_cast<int>(std::thread::hardware_concurrency());
  return is_in_measure && !share ? 1 : 1 / (1 - bubble_of(config.parallel));
}

// A plan leaves out the memory that an allocator keeps for later, and that which exists only while a job is made.
constexpr double most_of_free_memory = 0.75;

// use: that of a rank. Returns an empty text if so many have the memory here. Steps that are measured copy no state.
std::string why_not_measured(const RankUse& use, int ranks) {
  const auto free = free_memory();
  const double needed = use.memory_of_step() * ranks;
  if (!free || needed < most_of_free_memory * static_cast<double>(*free)) return {};
  return fmt::format("{} rank{} would take {}, more than {:.0f} % of the {} that are free here", ranks,
                     ranks == 1 ? "" : "s", byte_text(static_cast<std::size_t>(needed)), 100 * most_of_free_memory,
                     byte_text(*free));
}

void add_time(const TrainConfig& config, const data::SampleLayout& samples, const plugin::Registry& registry,
              const Measure& measure, StepPlan& plan) {
  const SmallJob small = small_job(config, plan.ranks);
  plan.reason = why_not_measured(plan.use, small.ranks);  // fewer ranks have larger parts
  if (!plan.reason.empty()) return;
  const ComputedStep step = compute_step(small.config, samples, small.ranks, registry);
  plan.reason = why_not_measured(step.use, small.ranks);
  if (!plan.reason.empty()) return;
  MeasuredStep measured;
  try {
    measured = measure(small);
  } catch (const Error& error) {  // such as ranks that the kernel has killed: the rest of the plan stands
    if (error.code() == Errc::usage) throw;
    plan.reason = error.what();
    return;
  }
  // The waits of a pipeline with fewer stages are those of another bubble.
  const bool waits_alike = small.config.parallel.ranks.on("pipeline") == config.parallel.ranks.on("pipeline") ||
                           small.config.parallel.ranks.on("pipeline") == 1;
  const double waiting = waits_alike ? waiting_ratio(plan, config, step, small) : 0;
  plan.time = measured.median(ratio(plan.use.operations, step.operations), waiting) * share_of_processors(small.ranks) *
              bubble_factor(config, small);
  plan.measured_ranks = measured.ranks;
  plan.steps = measured.steps;
  plan.is_slice = small.is_slice;
  // Which stage of a pipeline has the most depends on the ranks among which it is divided.
  plan.activations_are_measured = !small.is_slice && config.parallel.ranks.on("pipeline") == 1;
  if (plan.activations_are_measured) plan.use.activations = measured.use.activations;
}

// A job that is not computed has devices of its own; its ranks are all alike.
StepPlan measured_plan(const TrainConfig& config, int ranks, const Measure& measure) {
  const SmallJob small = small_job(config, ranks);
  const MeasuredStep measured = measure(small);
  StepPlan plan{.ranks = ranks, .use = measured.use, .activations_are_measured = true};
  if (config.parallel.zero > 0) plan.use.optimizer *= ratio(small.ranks, ranks);
  const auto sent_by = [&](int all) {
    const SharedBytes bytes{.parameters = static_cast<std::size_t>(measured.use.shared_parameters),
                            .buffers = static_cast<std::size_t>(measured.use.shared_buffers),
                            .experts = static_cast<std::size_t>(measured.use.shared_experts)};
    return bytes_sent_in_step(config.parallel, bytes, micro_batches_of_step(config, ranks), all);
  };
  plan.sent = sent_by(ranks);
  const double waiting =
      plan.sent ? ratio(static_cast<double>(*plan.sent), static_cast<double>(*sent_by(small.ranks)))
                : ratio(bytes_of_average(config, plan.use, ranks), bytes_of_average(config, plan.use, small.ranks));
  plan.time = measured.median(1, waiting) * share_of_processors(small.ranks);
  plan.measured_ranks = measured.ranks;
  plan.steps = measured.steps;
  return plan;
}

// Returns the copies of its gradients that a rank has with train.shards: its sums, what it sends, and what it receives.
// Those of the rank that has the most.
double copies_for_shards(int shards, int ranks) {
  std::size_t of_all = 0, most = 0, most_shards = 0;
  for (const auto& duty :
       divide_shards(shards, shards, std::vector<std::vector<Subtree>>(static_cast<std::size_t>(ranks)))) {
    const auto subtrees = subtrees_of(duty).size();
    of_all += subtrees;
    most = std::max(most, subtrees);
    most_shards = std::max(most_shards, duty.shards.size());
  }
  return static_cast<double>(std::bit_width(most_shards) + most) + static_cast<double>(of_all) / ranks;
}

// Returns the job with a micro-batch for each shard of a rank, which is computed like one.
TrainConfig with_micro_batches(const TrainConfig& config, int ranks) {
  TrainConfig result = config;
  result.train.batch_size = batch_sizes(config.train, ranks).micro;
  result.train.global_batch_size = 0;
  result.train.accumulate = divide_up(config.train.shards, ranks);
  result.train.shards = 0;
  return result;
}

}  // namespace

StepPlan plan_step(const TrainConfig& config, const data::SampleLayout& samples, int ranks,
                   const plugin::Registry& registry, const Measure& measure, std::optional<ComputedStep> computed) {
  if (config.train.shards > 0) {
    auto plan = plan_step(with_micro_batches(config, ranks), samples, ranks, registry, measure);
    plan.use.gradients *= 1 + copies_for_shards(static_cast<int>(config.train.shards), ranks);
    return plan;
  }
  if (!has_dry_step(config)) return measured_plan(config, ranks, measure);
  if (!computed) computed = compute_step(config, samples, ranks, registry);
  StepPlan plan{.ranks = ranks,
                .use = computed->use,
                .sent = computed->sent,
                .is_computed = true,
                .computed_blocks = computed->computed_blocks,
                .blocks = computed->blocks};
  plan.use.operations = computed->operations;
  add_time(config, samples, registry, measure, plan);
  return plan;
}

void plan(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry) {
  const auto datasets = make_datasets(config, settings, registry);
  naming_mesh_key(config.parallel, [&] { return mesh_sizes(mesh_axes(config.parallel.ranks), ranks); });
  const auto measure = [&](const SmallJob& job) {
    log::info("plan: steps are measured with {} rank{}", job.ranks, job.ranks == 1 ? "" : "s");
    return measure_step(job.config, datasets, job.ranks, registry);
  };
  std::string text;
  for (const auto& line : plan_table(plan_step(config, datasets.train->layout(), ranks, registry, measure)))
    text += line + "\n";
  write_standard_output(text);
}

}  // namespace ddprun::trainer
