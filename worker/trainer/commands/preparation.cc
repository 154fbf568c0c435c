#include "worker/trainer/commands/preparation.h"

#include <exception>
#include <utility>

#include "common/blocked_signals.h"
#include "common/log.h"
#include "common/rounding.h"
#include "worker/comm/init.h"
#include "worker/comm/launch_env.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/session/job_items.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {
namespace {

// Returns the job of one rank that has the micro-batches, or the shards, of a rank among so many.
TrainConfig with_share_of(const TrainConfig& config, int ranks) {
  TrainConfig share = config;
  share.train.batch_size = batch_sizes(config.train, ranks).micro;
  share.train.global_batch_size = 0;
  share.train.shards = divide_up(config.train.shards, ranks);
  return share;
}

// Forms a group of this process alone, which makes memory ahead for the job's group.
std::unique_ptr<World> form_own_group(const TrainConfig& config, std::shared_ptr<comm::PreviousGroup> reserve) {
  auto options = init_options(config, WorkerEnv{});
  options.previous_group = std::move(reserve);
  return init_process_group(options);
}

void train_one_step(const TrainConfig& config, const PreparedRun& prepared, const plugin::Registry& registry) {
  const auto world = form_own_group(config, prepared.own_group);
  const auto& datasets = prepared.datasets;
  const auto& layout = datasets.train->layout();
  const auto task = make_task(config, layout, registry);
  auto state = make_train_state(config, {}, layout, *task, 0, registry);
  const TrainJob job{.config = config, .datasets = datasets, .task = *task, .recovers = true};
  make_session(job, state, world->group())->step(false);
}

TrainState initial_state(const TrainConfig& config, const Settings& settings, const Datasets& datasets,
                         const plugin::Registry& registry) {
  const auto& layout = datasets.train->layout();
  const auto task = make_task(config, layout, registry);
  auto state = make_initial_state(config, settings_that_decide(settings), layout, *task, 0, registry, Device{});
  if (state.optimizer) state.optimizer->state();  // makes it
  return state;
}

}  // namespace

std::optional<PreparedRun> prepare_run(const TrainConfig& config, const Settings& settings,
                                       const plugin::Registry& registry, int ranks) {
  const BlockedSignals blocked;
  try {
    PreparedRun prepared{.datasets = make_datasets(config, settings, registry),
                         .items = {},
                         .state = {},
                         .own_group = reserve_for_next_group()};
    prepared.items = items_of_job("train", config, settings, prepared.datasets, registry);
    train_one_step(with_share_of(config, ranks), prepared, registry);
    prepared.state = initial_state(config, settings, prepared.datasets, registry);
    return prepared;
  } catch (const std::exception& error) {
    log::debug("the run could not be prepared: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace ddprun::trainer
