#include "ddprun/worker/comm/shm/phases.h"

#include <stdexcept>

#include <fmt/core.h>

namespace ddprun::comm {

void Phases::enter(const Collective& collective) {
  call_ = collective.sequence << 16 | signature(collective.operation);
  deadline_ = Deadline::in(collective.timeout);
}

void Phases::end() {
  auto& own = board_.rank(rank_);
  own.call[phase_ % 2].store(call_, std::memory_order_relaxed);
  own.phase.raise();
  ++phase_;
}

void Phases::await_all() {
  for (int r = 0; r < board_.ranks(); ++r) {
    if (r == rank_ || phase_ == 0) continue;
    auto& other = board_.rank(r);
    other.phase.await(phase_, {interrupted_, other.presence, patience_, deadline_});
    const auto call = other.call[(phase_ - 1) % 2].load(std::memory_order_relaxed);
    const auto own = board_.rank(rank_).call[(phase_ - 1) % 2].load(std::memory_order_relaxed);
    if (call != own) throw std::runtime_error(fmt::format("rank {} calls another operation", r));
  }
}

void Phases::wake() noexcept {
  for (int r = 0; r < board_.ranks(); ++r) board_.rank(r).phase.wake();
}

}  // namespace ddprun::comm
