#include "launcher/workers/worker.h"

namespace ddprun {

WorkerReport Worker::report() const {
  using State = WorkerReport::State;
  return {.local_rank = local_rank,
          .pid = process.pid,
          .state = exit              ? State::ended
                   : stopped_by != 0 ? State::stopped
                                     : State::running,
          .exit_code = exit ? exit->code : 0,
          .signal_number = exit ? exit->signal_number : stopped_by};
}

WorkerStatus Worker::status() const {
  return {.local_rank = local_rank,
          .pid = process.pid,
          .exit = exit,
          .started = exec_error == 0,
          .failed = failed,
          .error_file = error_file};
}

}  // namespace ddprun
