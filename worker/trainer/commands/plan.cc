#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "common/error.h"
#include "common/exit_code.h"
#include "worker/tensor/onednn/threads.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/commands/layout_plan.h"
#include "worker/trainer/commands/step_plan.h"
#include "worker/trainer/config/device_settings.h"

namespace ddprun::trainer {
namespace {

// Divides the processors among several ranks like the launcher, unless the user has set the number of threads.
void divide_threads(int ranks) {
  if (ranks == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  onednn::begin_with_threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks));
}

std::optional<int> count_of(const CommandContext& context, const std::string& option) {
  const auto found = context.counts.find(option);
  return found == context.counts.end() ? std::nullopt : std::optional(found->second);
}

int plan_job(const CommandContext& context) {
  const TrainConfig& config = context.config;
  const auto ranks_of_one = count_of(context, "--ranks"), ranks_of_all = count_of(context, "--world_size");
  if (ranks_of_one && ranks_of_all)
    throw Error(Errc::usage, "plan: --ranks plans the layout of the train.cfg, --world_size every layout: give one");
  if (config.parallel.strategy == "parameter_server")
    throw Error(Errc::usage, "parallel.strategy = parameter_server: plan is of steps that all ranks make together");
  if (names_cuda_devices(config.parallel))
    throw make_error(Errc::usage, "parallel.devices = {}: plan measures the CPU so far", config.parallel.devices);
  const int ranks = ranks_of_all.value_or(ranks_of_one.value_or(1));
  divide_threads(ranks);
  ranks_of_all ? plan_layouts(config, context.settings, ranks, context.registry)
               : plan(config, context.settings, ranks, context.registry);
  return exit_success;
}

}  // namespace

Command plan_command() {
  return {.name = "plan",
          .usage = "plan train.cfg [--ranks N | --world_size N] [--section.key=value ...]",
          .help =
              "plan prints what a step takes with N ranks (1): memory and bytes sent are computed, and the time is "
              "measured with at most two ranks here if they have the memory;\n"
              "with --world_size that of layouts of N ranks (pipeline x data x expert x context x tensor, ZeRO), the "
              "fastest first.\n",
          .run = plan_job,
          .counts = {"--ranks", "--world_size"}};
}

}  // namespace ddprun::trainer
