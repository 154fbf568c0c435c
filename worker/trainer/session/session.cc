#include "worker/trainer/session/session.h"

#include "worker/trainer/session/asynchronous_session.h"
#include "worker/trainer/session/train_session.h"

namespace ddprun::trainer {

std::unique_ptr<Session> make_session(const TrainJob& job, TrainState& state, ProcessGroup& group) {
  if (job.shared) require_same_items(*job.shared, group);
  if (job.config.parallel.strategy == "parameter_server")
    return std::make_unique<AsynchronousSession>(job, state, group);
  return std::make_unique<TrainSession>(job, state, group);
}

}  // namespace ddprun::trainer
