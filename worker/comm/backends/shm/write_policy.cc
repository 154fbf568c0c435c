#include "ddprun/worker/comm/backends/shm/write_policy.h"

#include <algorithm>
#include <bit>

namespace ddprun::comm {

std::size_t WritePolicy::place_of(const Kind& kind) {
  const auto size_class = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(kind.bytes)), size_classes - 1);
  return static_cast<std::size_t>(kind.kind) * size_classes + size_class;
}

std::optional<WritePolicy::Trial> WritePolicy::trial_at(std::uint32_t operation, std::uint32_t turn) {
  const auto length = std::clamp(turn, measured_trials, longest_turn), series = operation / length;
  const auto interval = series % series_interval;
  const bool early = series <= second_series + 1;
  const auto begin = early ? (series >= second_series ? second_series : first_series) : series - interval;
  if (series < begin || series > begin + 1) return std::nullopt;
  return Trial{series == begin ? Way::into_caches : Way::past_caches, length - operation % length};
}

WritePolicy::Choice WritePolicy::choose(const Kind& kind) const {
  const auto& history = histories_[place_of(kind)];
  if (const auto trial = trial_at(history.operations, kind.turn)) return {trial->way, trial->left <= measured_trials};
  return {history.decided.value_or(latest_), false};
}

void WritePolicy::end(const Kind& kind, Duration took) {
  auto& history = histories_[place_of(kind)];
  const auto trial = trial_at(history.operations++, kind.turn);
  if (!trial || trial->left > measured_trials) return;
  auto& least = history.least[static_cast<std::size_t>(trial->way)];
  least = trial->left == measured_trials ? took : std::min(least, took);
  if (trial->way == Way::into_caches || trial->left > 1) return;
  latest_ = history.least[1] < history.least[0] ? Way::past_caches : Way::into_caches;
  history.decided = latest_;
}

}  // namespace ddprun::comm
