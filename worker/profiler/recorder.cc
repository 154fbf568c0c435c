#include "worker/profiler/recorder.h"

#include <utility>

namespace ddprun::profiler {

void Recorder::begin(Kind kind, std::string name, std::string module, Time at) {
  open_.push_back({.kind = kind, .name = std::move(name), .module = std::move(module), .start = at});
}

void Recorder::end(Time at) {
  Event event = std::move(open_.back());
  open_.pop_back();
  event.duration = at - event.start;
  if (!open_.empty()) open_.back().self += event.duration;
  event.self = event.duration - event.self;
  events_.push_back(std::move(event));
}

std::vector<Event> Recorder::take() {
  return std::exchange(events_, {});
}

}  // namespace ddprun::profiler
