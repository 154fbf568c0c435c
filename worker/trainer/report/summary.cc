#include "worker/trainer/report/summary.h"

#include <fmt/format.h>

#include "common/error.h"
#include "worker/trainer/report/progress.h"

namespace ddprun::trainer {

std::string summary_line(const Summary& s) {
  if (s.preempted)
    return fmt::format("preempted at step {}: a checkpoint is saved, the same command resumes from it", s.steps);
  auto line = fmt::format("done: {} step{}", s.steps, s.steps == 1 ? "" : "s");
  if (s.skipped_steps > 0) line += fmt::format(" ({} skipped)", s.skipped_steps);
  line += fmt::format(", loss {:.4f}", s.evaluation.loss);
  if (s.diverged_at > 0) line += fmt::format(" (not finite since step {})", s.diverged_at);
  return line + fmt::format("{}, parameters sha256:{}", figures_text(s.evaluation), s.parameter_digest);
}

void check_learnt(const Summary& s) {
  if (s.preempted || s.steps == 0 || s.skipped_steps < s.steps) return;
  throw make_error(Errc::unsupported,
                   "all {} steps were skipped, since their gradients were not finite: the parameters are those of the "
                   "beginning. A smaller train.loss_scale fits sooner",
                   s.steps);
}

}  // namespace ddprun::trainer
