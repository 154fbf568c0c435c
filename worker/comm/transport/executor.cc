#include "ddprun/worker/comm/transport/executor.h"

#include "ddprun/worker/comm/call/composed.h"
#include "ddprun/worker/comm/transport/lane_executor.h"
#include "ddprun/worker/comm/transport/turn_executor.h"

namespace ddprun::comm {

std::optional<Error> Executor::carry_out(Collective& collective, Ledger::Place place) {
  const auto& operation = collective.operation;
  auto& ledger = health_.ledger();
  try {
    if (!operation.empty()) {
      collective.timeout = health_.backstop(collective.timeout);
      carry_out_on(transport_, collective, seat_);
    }
    ledger.end(place);
    return std::nullopt;
  } catch (const std::exception& error) {
    auto cause = health_.explain(place, operation, error);
    ledger.end(place, true);
    return cause;
  }
}

std::unique_ptr<Executor> make_executor(Transport& transport, GroupHealth& health, Seat seat) {
  if (transport.runs_anywhere()) return std::make_unique<TurnExecutor>(transport, health, seat);
  return std::make_unique<LaneExecutor>(transport, health, seat);
}

}  // namespace ddprun::comm
