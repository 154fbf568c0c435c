#include <optional>

#include "common/error.h"
#include "common/exit_code.h"
#include "worker/tensor/device_fault.h"
#include "worker/trainer/commands/rank_start.h"
#include "worker/trainer/report/device_fault.h"

namespace ddprun::trainer {
namespace {

int train_in_group(const CommandContext& command, const StartedRank& rank) {
  const TrainConfig& config = command.config;
  const Trainer::Context& context = rank.context;
  std::optional<Trainer> trainer;
  Summary summary;
  try {
    trainer.emplace(config, settings_that_decide(command.settings), rank.datasets, context);
    summary = trainer->run();
  } catch (const Error& error) {
    // The process group may have noticed first that the device has failed, and knows less of it.
    const bool of_device = dynamic_cast<const DeviceError*>(&error) || dynamic_cast<const OutOfDeviceMemory*>(&error);
    const auto fault = of_device ? std::nullopt : device_fault(context.device);
    const Error& cause = fault ? static_cast<const Error&>(*fault) : error;
    // The others learn the reason, and nothing waits for them when the trainer ends.
    if (is_device_fault(cause, context.device)) context.abort(cause.what());
    throw fault_of_rank(cause, config, rank.place, context.device);
  }
  if (summary.left) return exit_success;
  context.progress.line(summary_line(summary));
  if (summary.preempted) return exit_preempted;  // also when the line is lost: the checkpoint is complete
  check_output(context.progress);
  check_learnt(summary);
  return exit_success;
}

int train(const CommandContext& context) {
  return run_as_rank(context, "train", [&](const StartedRank& rank) { return train_in_group(context, rank); });
}

}  // namespace

Command train_command() {
  return {.name = "train", .usage = "train.cfg [--section.key=value ...]", .help = "", .run = train};
}

}  // namespace ddprun::trainer
