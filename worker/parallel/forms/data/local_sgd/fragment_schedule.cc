#include "worker/parallel/forms/data/local_sgd/fragment_schedule.h"

#include <algorithm>
#include <numeric>

namespace ddprun {

std::optional<std::int64_t> FragmentSchedule::begins_after(std::int64_t step) const {
  if (step < 1) return std::nullopt;
  const std::int64_t within = (step - 1) % period + 1;
  for (std::int64_t fragment = 0; fragment < fragments; ++fragment)
    if ((fragment + 1) * period / fragments == within) return fragment;
  return std::nullopt;
}

std::optional<std::int64_t> FragmentSchedule::ends_after(std::int64_t step) const {
  return begins_after(step - delay);
}

std::vector<std::int64_t> fragments_of(const std::vector<std::size_t>& bytes, std::int64_t fragments) {
  const auto total = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  const auto count = static_cast<std::size_t>(fragments);
  std::vector<std::int64_t> all;
  std::size_t before = 0;
  for (const std::size_t each : bytes) {
    const std::size_t twice_the_middle = 2 * before + each;
    const std::size_t fragment = total == 0 ? 0 : std::min(twice_the_middle * count / (2 * total), count - 1);
    all.push_back(static_cast<std::int64_t>(fragment));
    before += each;
  }
  return all;
}

}  // namespace ddprun
