#include "worker/parallel/forms/parameter_server/staleness_gate.h"

#include <algorithm>

namespace ddprun {

StalenessGate::StalenessGate(int workers, std::int64_t bound)
    : bound_(bound), histogram_(static_cast<std::size_t>(bound) + 1) {
  readers_.reserve(static_cast<std::size_t>(workers));
}

void StalenessGate::ask_to_read(int worker) {
  waiting_to_read_.push_back(worker);
}

void StalenessGate::ask_to_apply(int worker) {
  waiting_to_apply_.push_back(worker);
}

// Returns whether the other readers' gradients, applied after this one in the readers' order, stay within the bound.
bool StalenessGate::may_apply(int worker) const {
  std::int64_t applied = version_ + 1;
  for (const Reader& reader : readers_) {
    if (reader.worker == worker) continue;
    if (applied - reader.version > bound_) return false;
    ++applied;
  }
  return true;
}

std::optional<StalenessGate::Admission> StalenessGate::admit() {
  const auto ready = std::ranges::find_if(waiting_to_apply_, [this](int worker) { return may_apply(worker); });
  if (ready != waiting_to_apply_.end()) {
    const int worker = *ready;
    waiting_to_apply_.erase(ready);
    const auto reader = std::ranges::find(readers_, worker, &Reader::worker);
    const std::int64_t staleness = version_ - reader->version;
    readers_.erase(reader);
    ++version_;
    ++histogram_[static_cast<std::size_t>(staleness)];
    return Admission{Admission::Kind::apply, worker, staleness};
  }
  if (waiting_to_read_.empty() || std::ssize(readers_) > bound_) return std::nullopt;
  const int worker = waiting_to_read_.front();
  waiting_to_read_.pop_front();
  readers_.push_back({worker, version_});
  return Admission{Admission::Kind::read, worker, 0};
}

}  // namespace ddprun
