#include "worker/comm/execution/executor.h"

namespace ddprun::comm {

void CollectiveRunner::execute_composed(const Collective& collective) {
  compose(collective, rank_info_, [this](const Collective& one) { transport_.execute(one); });
}

Error CollectiveRunner::fail(const Collective& collective, OperationLog::Slot slot, const std::exception& failure) {
  auto cause = health_.explain(slot, collective.operation, failure);
  health_.operation_log().end(slot, true);
  return cause;
}

}  // namespace ddprun::comm
