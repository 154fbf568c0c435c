#include "worker/data/epoch_plan.h"

namespace ddprun::data {

BatchList batches_of_parts(const EpochPlan& plan, const std::vector<std::int64_t>& order, std::int64_t done,
                           const std::vector<int>& parts, std::int64_t batch_size,
                           const std::optional<std::vector<int>>& in_first_step) {
  BatchList list;
  const auto add_part = [&](std::int64_t begin, std::int64_t samples, int part) {
    const auto share = plan.share(samples, part);
    for (std::int64_t i = 0; i < share; ++i) {
      list.indices.push_back(order[static_cast<std::size_t>(begin + plan.position(samples, part, i))]);
      if ((i + 1) % batch_size == 0 || i + 1 == share) list.ends.push_back(std::ssize(list.indices));
    }
  };
  for (auto begin = done; plan.left(begin) > 0; begin += plan.samples_at(begin))
    for (const int part : begin == done && in_first_step ? *in_first_step : parts)
      add_part(begin, plan.samples_at(begin), part);
  return list;
}

}  // namespace ddprun::data
