#include "worker/recovery/plan_watch.h"

#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace ddprun {

PlanWatch::PlanWatch(Connect connect, std::string key, Deadline deadline, std::string late, OnEnd on_end)
    : connect_(std::move(connect)),
      key_(std::move(key)),
      deadline_(deadline),
      late_(std::move(late)),
      on_end_(std::move(on_end)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

PlanWatch::~PlanWatch() {
  thread_.request_stop();
}

void PlanWatch::run(const std::stop_token& stop) try {
  const auto store = connect_(deadline_, stop);
  const bool set = is_set(*store);
  if (stop.stop_requested()) return;
  on_end_(set, set ? "the members have changed meanwhile" : late_);
} catch (const Error& error) {
  const bool late = error.code() == Errc::timeout && deadline_.expired();
  if (!stop.stop_requested())
    on_end_(false, late ? late_ : fmt::format("cannot wait for a newer generation: {}", error.what()));
}

bool PlanWatch::is_set(Store& store) {
  try {
    store.wait({key_}, deadline_);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    return false;
  }
}

}  // namespace ddprun
