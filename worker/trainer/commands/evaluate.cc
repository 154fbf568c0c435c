#include <fmt/format.h>

#include "common/exit_code.h"
#include "worker/trainer/commands/rank_start.h"
#include "worker/trainer/session/compute_scope.h"
#include "worker/trainer/session/evaluation.h"
#include "worker/trainer/state/train_state.h"
#include "worker/trainer/state/trained_model.h"

namespace ddprun::trainer {
namespace {

// Evaluates like training: with the precision of the settings, the samples spread over the ranks.
Evaluation evaluate_on_test_set(const CommandContext& command, const StartedRank& rank) {
  const TrainConfig& config = command.config;
  const data::Dataset& samples = *rank.datasets.test;
  const auto task = make_evaluation_task(config, samples.layout(), command.registry);
  const auto model = load_trained_model("evaluate", config, samples.layout(), *task, command.registry);
  model->to(rank.context.device);
  const ComputeScope scope(config.train);
  return evaluate(
      *model, *task, samples, *rank.context.group,
      {.batch_size = config.eval.batch_size, .workers = config.data.loader.workers, .device = rank.context.device});
}

int evaluate_model(const CommandContext& context) {
  return run_as_rank(context, "evaluate", [&](const StartedRank& rank) {
    const Evaluation evaluation = evaluate_on_test_set(context, rank);
    rank.context.progress.line(fmt::format("{}, {} samples", evaluation_text(evaluation), rank.datasets.test->size()));
    check_output(rank.context.progress);
    return exit_success;
  });
}

}  // namespace

Command evaluate_command() {
  return {.name = "evaluate",
          .usage = "evaluate train.cfg [--section.key=value ...]",
          .help =
              "evaluate prints the loss of that model on the test set and its other figures, as a single process or as "
              "one rank of several.\n",
          .run = evaluate_model};
}

}  // namespace ddprun::trainer
