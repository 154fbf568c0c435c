#pragma once

#include <cstdint>
#include <string>

#include "worker/trainer/session/evaluation.h"

namespace ddprun::trainer {

// The results of a finished run.
struct Summary {
  std::int64_t steps = 0;
  std::int64_t skipped_steps = 0;  // those in which the optimizer changed nothing
  Evaluation evaluation;
  std::string parameter_digest;  // SHA-256, hexadecimal
  bool preempted = false;        // stopped early on request: the checkpoint of this step is complete
  bool left = false;             // this rank left the run after this step, and others go on
  std::int64_t diverged_at = 0;  // the first step whose loss, training or test, was not finite; 0 if none
};

// Returns for a preempted run "preempted at step 12: ...", otherwise "done: 630 steps (2 skipped), loss 0.0412,
// accuracy 97.85 %, parameters sha256:..."
std::string summary_line(const Summary& summary);
// Throws Errc::unsupported for a finished run whose steps were all skipped: it has learnt nothing.
void check_learnt(const Summary& summary);

}  // namespace ddprun::trainer
