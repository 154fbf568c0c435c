#include "ddprun/worker/data/epoch_plan.h"

namespace ddprun::data {

BatchList batches_of_rank(const EpochPlan& plan, const std::vector<std::int64_t>& order, std::int64_t done, int rank,
                          std::int64_t batch_size) {
  BatchList list;
  for (auto begin = done; plan.left(begin) > 0; begin += plan.samples_at(begin)) {
    const auto samples = plan.samples_at(begin);
    const auto share = plan.share(samples, rank);
    for (std::int64_t i = 0; i < share; ++i) {
      list.indices.push_back(order[static_cast<std::size_t>(begin + plan.position(samples, rank, i))]);
      if ((i + 1) % batch_size == 0 || i + 1 == share) list.ends.push_back(std::ssize(list.indices));
    }
  }
  return list;
}

}  // namespace ddprun::data
