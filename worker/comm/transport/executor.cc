#include "ddprun/worker/comm/transport/executor.h"

#include "ddprun/worker/comm/call/composed.h"
#include "ddprun/worker/comm/transport/lane_executor.h"
#include "ddprun/worker/comm/transport/turn_executor.h"

namespace ddprun::comm {

bool Executor::passes_unchanged(const Collective& collective) const {
  return !collective.operation.empty() && carried_out_as_it_is(transport_, collective, seat_);
}

std::optional<Error> Executor::carry_out(Collective& collective, Ledger::Place place, bool unchanged) {
  const auto& operation = collective.operation;
  auto& ledger = health_.ledger();
  try {
    collective.timeout = health_.backstop(collective.timeout);
    if (unchanged) {
      transport_.carry_out(collective);
    } else if (!operation.empty()) {
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
