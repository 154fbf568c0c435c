#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {

void bind_recovery(Settings& s, TrainConfig::Recovery& r) {
  s.add("recovery.mode", r.mode,
        {.help = "what ranks do when one of them is lost. in_process: they keep their processes, and go on with a "
                 "replacement that copies their state, where ddprun has restarts left; restart: all processes are "
                 "started again, and resume from the newest checkpoint, which is the default with a parallel.hook that "
                 "keeps an error, unless parallel.zero is set",
         .choices = {"in_process", "restart"},
         .scope = Scope::group});
  s.add("recovery.wait", r.wait,
        {.help = "how long ranks wait for a replacement to join before the job is restarted as a whole",
         .unit = "s",
         .min = 1,
         .max = 86'400,
         .scope = Scope::group});
  s.add("recovery.standby", r.standby,
        {.help = "whether each node keeps a process ready that has made a step of its own and waits, so that a "
                 "replacement neither has to start nor to make a first step; it takes about the memory of a rank. "
                 "ddprun starts it after a few seconds of training. Not with model.plugin and optim.offload",
         .scope = Scope::group});
  s.add("recovery.file", r.file,
        {.help = "JSON lines file to which each rank adds a record for each recovery: when it came to the end of each "
                 "phase, in microseconds since the epoch. Empty: none",
         .scope = Scope::process});
}

}  // namespace ddprun::trainer
