#include "ddprun/worker/trainer/recovery/plan_watch.h"

#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"

namespace ddprun::trainer {
PlanWatch::PlanWatch(std::shared_ptr<Store> store, std::string key, Deadline deadline,
                     std::function<void(const std::string& why)> on_end)
    : store_(std::move(store)),
      key_(std::move(key)),
      deadline_(deadline),
      on_end_(std::move(on_end)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

PlanWatch::~PlanWatch() {
  thread_.request_stop();
  store_->wake();
}

// A wake-up ends the wait as its deadline does, also one that comes first.
void PlanWatch::run(const std::stop_token& stop) try {
  const bool set = is_set();
  if (stop.stop_requested()) return;
  on_end_(set ? "another rank was lost meanwhile" : "not all ranks have joined within the bound (recovery.wait)");
} catch (const Error& error) {
  log::debug("cannot wait for a newer generation: {}", error.what());
}

bool PlanWatch::is_set() {
  try {
    store_->wait({key_}, deadline_);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    return false;
  }
}

}  // namespace ddprun::trainer
