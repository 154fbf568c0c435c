#include "worker/trainer/session/expert_use.h"

#include <algorithm>
#include <numeric>

namespace ddprun::trainer {
namespace {

constexpr std::size_t numbers_of_layer = 3;  // load, dropped choices, choices

}  // namespace

std::vector<double> take_expert_numbers(const std::vector<nn::MixtureOfExperts*>& layers) {
  std::vector<double> numbers;
  for (auto* layer : layers) {
    const auto [chosen, dropped] = layer->take_load();
    const auto sum = static_cast<double>(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}));
    const auto most = chosen.empty() ? 0.0 : static_cast<double>(std::ranges::max(chosen));
    const double load = sum > 0 ? most * static_cast<double>(chosen.size()) / sum : 0;
    numbers.insert(numbers.end(), {load, static_cast<double>(dropped), sum});
  }
  return numbers;
}

std::optional<ExpertUse> expert_use_of(std::span<const double> numbers) {
  if (numbers.empty()) return std::nullopt;
  ExpertUse use;
  double choices = 0;
  for (; !numbers.empty(); numbers = numbers.subspan(numbers_of_layer)) {
    use.load = std::max(use.load, numbers[0]);
    use.dropped += numbers[1];
    choices += numbers[2];
  }
  if (choices > 0) use.dropped /= choices;
  return use;
}

}  // namespace ddprun::trainer
