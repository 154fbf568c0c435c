#include "worker/comm/backends/shm/write_policy.h"

#include <algorithm>
#include <bit>

namespace ddprun::comm {

std::uint32_t WritePolicy::series_length(std::uint32_t turn) {
  return std::min(turn, longest_turn) + measured_trials;
}

WritePolicy::Class WritePolicy::class_of(const Kind& kind) {
  return {kind.kind, static_cast<int>(std::bit_width(kind.bytes)), series_length(kind.turn)};
}

std::optional<WritePolicy::Trial> WritePolicy::trial_at(std::uint32_t operation, std::uint32_t length) {
  const auto series = operation / length;
  const bool early = series <= second_series + 1;
  const auto begin =
      early ? (series >= second_series ? second_series : first_series) : series - series % series_interval;
  if (series < begin || series > begin + 1) return std::nullopt;
  return Trial{series == begin ? Way::into_caches : Way::past_caches, length - operation % length};
}

WritePolicy::Choice WritePolicy::choose(const Kind& kind) const {
  const auto found = histories_.find(class_of(kind));
  if (found == histories_.end()) return {latest_, false};
  const History& history = found->second;
  if (const auto trial = trial_at(history.operations, series_length(kind.turn)))
    return {trial->way, trial->left <= measured_trials};
  return {history.decided.value_or(latest_), false};
}

void WritePolicy::end(const Kind& kind, Duration took) {
  History& history = histories_[class_of(kind)];
  const auto trial = trial_at(history.operations++, series_length(kind.turn));
  if (!trial || trial->left > measured_trials) return;
  auto& least = history.least[static_cast<std::size_t>(trial->way)];
  least = trial->left == measured_trials ? took : std::min(least, took);
  if (trial->way == Way::into_caches || trial->left > 1) return;
  latest_ = history.least[1] < history.least[0] ? Way::past_caches : Way::into_caches;
  history.decided = latest_;
}

}  // namespace ddprun::comm
