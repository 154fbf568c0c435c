#include "launcher/workers/standby_pool.h"

#include <algorithm>

namespace ddprun {

void StandbyPool::begin_round() {
  for (auto& standby : standbys_) standby.begin_round();
}

void StandbyPool::start(std::size_t count, const std::function<ProcessSpec(std::size_t index)>& spec,
                        const std::function<std::span<const std::string>(int descriptor)>& environment) {
  while (standbys_.size() < count) standbys_.emplace_back(guardian_);
  for (std::size_t i = 0; i < count; ++i) standbys_[i].start(spec(i), environment);
}

std::optional<StartedProcess> StandbyPool::adopt(const ProcessSpec& worker) {
  for (auto& standby : standbys_)
    if (auto adopted = standby.adopt(worker)) return adopted;
  return std::nullopt;
}

bool StandbyPool::apply(const ProcessChange& change) {
  bool was_killed = false;
  for (auto& standby : standbys_) was_killed |= standby.apply(change);
  return was_killed;
}

void StandbyPool::kill() {
  for (auto& standby : standbys_) standby.kill();
}

std::size_t StandbyPool::ready() {
  return static_cast<std::size_t>(std::ranges::count_if(standbys_, [](Standby& standby) { return standby.ready(); }));
}

}  // namespace ddprun
