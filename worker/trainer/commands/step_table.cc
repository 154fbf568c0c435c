#include "worker/trainer/commands/step_table.h"

#include <chrono>
#include <cmath>

#include <fmt/format.h>

namespace ddprun::trainer {
namespace {

std::string memory_row(const char* name, double bytes) {
  return fmt::format("{:<28} {:>14.0f} bytes {:>10.2f} MiB", name, std::round(bytes), bytes / (1 << 20));
}

std::string ranks_text(int ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

std::string time_row(const StepPlan& plan) {
  if (!plan.time) return fmt::format("{:<28} {:>14}: {}", "time", "not measured", plan.reason);
  return fmt::format("{:<28} {:>14.3f} ms, the median of {} steps with {}{}", "time",
                     std::chrono::duration<double, std::milli>(*plan.time).count(), plan.steps,
                     ranks_text(plan.measured_ranks), plan.is_slice ? ", scaled by operations and bubble" : "");
}

std::string source_row(const StepPlan& plan) {
  if (!plan.is_computed) return "memory and bytes are those of the measured steps";
  std::string text = "memory and bytes are computed";
  if (plan.computed_blocks < plan.blocks)
    text += fmt::format(" from {} of {} blocks, which are alike", plan.computed_blocks, plan.blocks);
  return text + (plan.activations_are_measured ? ", activations are measured" : "");
}

}  // namespace

std::vector<std::string> plan_table(const StepPlan& plan) {
  const RankUse& use = plan.use;
  std::vector<std::string> lines{fmt::format("{:<28} {:>14}", "a step, per rank", ranks_text(plan.ranks)),
                                 memory_row("parameters and buffers", use.parameters),
                                 memory_row("gradients", use.gradients), memory_row("optimizer state", use.optimizer)};
  if (use.averages > 0) lines.push_back(memory_row("averages", use.averages));
  if (use.kept > 0) lines.push_back(memory_row("copies for neighbours", use.kept));
  lines.push_back(memory_row("activations, at the peak", use.activations));
  if (use.copied > 0) lines.push_back(memory_row("copy for a checkpoint", use.copied));
  if (use.gathered > 0) lines.push_back(memory_row("gathered, at the peak", use.gathered));
  lines.push_back(plan.sent ? memory_row("sent", static_cast<double>(*plan.sent))
                            : fmt::format("{:<28} {:>14}", "sent", "not predicted with this parallel.hook"));
  lines.push_back(time_row(plan));
  lines.push_back(source_row(plan));
  return lines;
}

}  // namespace ddprun::trainer
