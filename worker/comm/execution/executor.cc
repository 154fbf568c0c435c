#include "ddprun/worker/comm/execution/executor.h"

#include "ddprun/worker/comm/execution/caller_runs_executor.h"
#include "ddprun/worker/comm/execution/queue_executor.h"
#include "ddprun/worker/comm/operations/composed.h"

namespace ddprun::comm {

bool Executor::passes_unchanged(const Collective& collective) const {
  return !collective.operation.empty() && (transport_.accepts_raw_calls() || is_elementary(collective, rank_info_));
}

std::optional<Error> Executor::execute(Collective& collective, OperationLog::Slot slot, bool unchanged) {
  const auto& operation = collective.operation;
  auto& operation_log = health_.operation_log();
  try {
    collective.timeout = health_.backstop(collective.timeout);
    if (unchanged) {
      transport_.execute(collective);
    } else if (!operation.empty()) {
      compose(collective, rank_info_, [this](const Collective& one) { transport_.execute(one); });
    }
    operation_log.end(slot);
    return std::nullopt;
  } catch (const std::exception& error) {
    auto cause = health_.explain(slot, operation, error);
    operation_log.end(slot, true);
    return cause;
  }
}

std::unique_ptr<Executor> make_executor(Transport& transport, GroupHealth& health, RankInfo rank_info) {
  if (transport.thread_agnostic()) return std::make_unique<CallerRunsExecutor>(transport, health, rank_info);
  return std::make_unique<QueueExecutor>(transport, health, rank_info);
}

}  // namespace ddprun::comm
