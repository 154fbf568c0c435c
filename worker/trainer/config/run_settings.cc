#include "worker/trainer/config/run_settings.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "common/rounding.h"

namespace ddprun::trainer {

data::EpochPlan epoch_plan(const TrainConfig& c, std::int64_t size, int ranks) {
  const int parts = parts_of_step(c.train, ranks);
  data::EpochPlan plan{.size = size, .step_samples = batch_sizes(c.train, ranks).step, .parts = parts, .divisor = 1};
  if (c.data.drop_last) plan.divisor = c.train.global_batch_size > 0 ? c.train.global_batch_size : parts;
  if (size == 0) throw Error(Errc::usage, "the training set is empty");
  if (plan.left(0) == 0)
    throw make_error(Errc::usage, "data.drop_last leaves nothing of {} samples: {}", size,
                     c.train.global_batch_size > 0
                         ? fmt::format("a step takes {} (train.global_batch_size)", c.train.global_batch_size)
                         : fmt::format("there are {} {}", parts, c.train.shards > 0 ? "shards" : "ranks"));
  return plan;
}

std::int64_t micro_batch_size(const TrainConfig& config, int ranks) {
  const BatchSizes sizes = batch_sizes(config.train, ranks);
  if (config.parallel.micro_batches == 0) return sizes.micro;
  return divide_up(divide_up(sizes.step, ranks), config.parallel.micro_batches);
}

bool copies_for_checkpoints(const TrainConfig& config) {
  return !config.checkpoint.dir.empty() && config.checkpoint.background && config.parallel.strategy != "local_sgd";
}

std::chrono::milliseconds disk_timeout(const TrainConfig::Checkpoint& config) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(config.timeout));
}

optim::LrScheduleOptions lr_schedule_options(const TrainConfig::Optim& o, std::int64_t run_length) {
  optim::LrScheduleOptions options = o.lr_schedule;
  options.lr = o.lr;
  options.length = o.schedule_length > 0 ? o.schedule_length : run_length;
  options.milestones = parse_extents(o.milestones);
  // With a warm-up as long as the run, the curve after it has no length, and is not reached.
  options.length = std::max(options.length, options.warmup + 1);
  return options;
}

}  // namespace ddprun::trainer
