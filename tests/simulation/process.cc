#include "tests/simulation/process.h"

#include "tests/simulation/network.h"

namespace ddprun::testing {

void Process::kill() {
  if (!std::exchange(alive_, false)) return;
  for (const auto& [connection, side] : std::exchange(connections_, {}))
    if (const auto open = connection.lock()) open->close(static_cast<Connection::Side>(side));
}

void Process::lose_power() {
  alive_ = false;
  lost_ = true;
  connections_.clear();
}

void Process::at(Time when, std::function<void()> action) {
  time_.at(when, [self = shared_from_this(), action = std::move(action)]() mutable {
    if (!self->alive_) return;
    if (const Time from = self->runnable_at(); from > self->time_.now()) return self->at(from, std::move(action));
    action();
  });
}

}  // namespace ddprun::testing
