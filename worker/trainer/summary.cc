#include "ddprun/worker/trainer/summary.h"

#include <fmt/format.h>

#include "ddprun/worker/trainer/progress.h"

namespace ddprun::trainer {

std::string summary_line(const Summary& s) {
  if (s.preempted)
    return fmt::format("preempted at step {}: a checkpoint is saved, the same command resumes from it", s.steps);
  auto line = fmt::format("done: {} step{}, loss {:.4f}", s.steps, s.steps == 1 ? "" : "s", s.evaluation.loss);
  if (s.diverged_at > 0) line += fmt::format(" (not finite since step {})", s.diverged_at);
  return line + fmt::format("{}, parameters sha256:{}", figures_text(s.evaluation), s.parameter_digest);
}

}  // namespace ddprun::trainer
