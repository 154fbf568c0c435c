#include "worker/trainer/config/keys.h"
#include "worker/trainer/config/resume.h"

namespace ddprun::trainer {

void bind_checkpoint(Settings& s, TrainConfig::Checkpoint& c) {
  s.add("checkpoint.dir", c.dir,
        {.help = "folder of the checkpoints; a run resumes from the newest one in it. Empty: none are written",
         .scope = Scope::group});
  s.add("checkpoint.every_steps", c.every_steps,
        {.help = "number of steps between two checkpoints; 0: one at the end of each epoch",
         .unit = "steps",
         .min = 0,
         .scope = Scope::group});
  s.add(
      "checkpoint.keep", c.keep,
      {.help = "number of checkpoints to keep, the newest ones", .min = 1, .max = 1'000'000, .scope = Scope::process});
  s.add("checkpoint.keep_best", c.keep_best,
        {.help = "keep the checkpoint with the lowest loss of an evaluation too, in the folder best",
         .scope = Scope::group});
  s.add("checkpoint.background", c.background,
        {.help = "write checkpoints while training goes on, from a copy of the state; false: training waits until each "
                 "is on the disk",
         .scope = Scope::group});
  s.add(
      "checkpoint.timeout", c.timeout,
      {.help = "how long a save waits for an answer of the disk to one request, such as to write 1 MiB, before the run "
               "ends with an error that names the rank, its host and the file; 0: for ever",
       .unit = "s",
       .min = 0,
       .max = 86'400,
       .scope = Scope::process});
  s.add(
      "checkpoint.peers", c.peers,
      {.help = "1: now and then, so that it takes at most 2 % of the time, each rank sends a copy of its parts of the "
               "state to another rank, on another host where there is one, and keeps one itself. If a rank is lost, "
               "all return to the step of these copies, where ranks have parts of the state of which there is no "
               "other copy. 0: they return to the newest checkpoint",
       .min = 0,
       .max = 1,
       .scope = Scope::group});
  s.add("checkpoint.heal_memory", c.heal_memory,
        {.help = "the most MiB of gradients that rank 0 keeps for each node that is to join, to whose processes it "
                 "sends the state while training goes on: steps wait when there are more. 0: nothing is sent ahead, "
                 "and all ranks wait while these processes copy the state",
         .min = 0,
         .max = 1'048'576,
         .scope = Scope::group});
  s.add("checkpoint.resume", c.resume,
        {.help = "auto: resume from the newest checkpoint, or start from step 0 when there is none; never: start from "
                 "step 0, after a restart too; require: fail when there is no checkpoint; best: resume from the one "
                 "that checkpoint.keep_best has kept, after a restart too, and fail when there is none",
         .choices = resume_names(),
         .scope = Scope::group});
}

void bind_metrics(Settings& s, TrainConfig::Metrics& m) {
  s.add("metrics.file", m.file,
        {.help = "JSON lines file with a record for each step and each evaluation, written by rank 0. Empty: none",
         .scope = Scope::group});
  s.add("metrics.tensorboard", m.tensorboard,
        {.help = "folder for a file with scalars of each step and each evaluation that TensorBoard shows, written by "
                 "rank 0. Empty: none",
         .scope = Scope::process});
}

}  // namespace ddprun::trainer
