#include "worker/trainer/session/expert_use.h"

#include <algorithm>
#include <numeric>

namespace ddprun::trainer {

std::optional<ExpertUse> take_expert_use(const std::vector<nn::MixtureOfExperts*>& layers) {
  if (layers.empty()) return std::nullopt;
  ExpertUse use;
  double choices = 0;
  for (auto* layer : layers) {
    const auto [chosen, dropped] = layer->take_load();
    if (chosen.empty()) continue;  // there was no pass
    const auto sum = static_cast<double>(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}));
    const auto most = static_cast<double>(std::ranges::max(chosen));
    if (sum > 0) use.load = std::max(use.load, most * static_cast<double>(chosen.size()) / sum);
    use.dropped += static_cast<double>(dropped);
    choices += sum;
  }
  if (choices > 0) use.dropped /= choices;
  return use;
}

}  // namespace ddprun::trainer
