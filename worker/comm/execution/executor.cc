#include "ddprun/worker/comm/execution/executor.h"

#include "ddprun/worker/comm/operations/composed.h"

namespace ddprun::comm {

bool CollectiveRunner::passes_unchanged(const Collective& collective) const {
  return !collective.operation.empty() && (accepts_raw_calls_ || is_elementary(collective, rank_info_));
}

std::optional<Error> CollectiveRunner::run(Collective& collective, OperationLog::Place place, bool unchanged) {
  const auto& operation = collective.operation;
  auto& operation_log = health_.operation_log();
  try {
    collective.timeout = health_.backstop(collective.timeout);
    if (unchanged) {
      transport_.execute(collective);
    } else if (!operation.empty()) {
      compose(collective, rank_info_, [this](const Collective& one) { transport_.execute(one); });
    }
    operation_log.end(place);
    return std::nullopt;
  } catch (const std::exception& error) {
    auto cause = health_.explain(place, operation, error);
    operation_log.end(place, true);
    return cause;
  }
}

}  // namespace ddprun::comm
