#include "worker/comm/bootstrap/dial_ahead.h"

#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/log.h"

namespace ddprun::comm {

void DialAhead::begin(int count) {
  std::vector<Dialling> next;
  const BlockedSignals blocked;
  for (int i = 0; i < count; ++i) {
    auto& each = next.emplace_back();
    each.store = std::async(std::launch::async | std::launch::deferred,
                            [this, stop = each.stop.get_token()] { return dial_(stop); });
  }
  {
    const std::lock_guard lock(mutex_);
    begun_.swap(next);
  }
}

std::shared_ptr<Store> DialAhead::take() {
  std::future<std::shared_ptr<Store>> store;
  {
    const std::lock_guard lock(mutex_);
    if (begun_.empty()) return nullptr;
    store = std::move(begun_.back().store);
    begun_.pop_back();
  }
  try {
    return store.get();
  } catch (const Error& error) {
    log::debug("a connection to the store that was dialled ahead failed: {}", error.what());
    return nullptr;
  }
}

}  // namespace ddprun::comm
