#include "worker/comm/backends/nccl/unique_ids.h"

#include <algorithm>

#include "common/rounding.h"
#include "worker/comm/backends/nccl/nccl_api.h"
#include "worker/comm/backends/nccl/nccl_types.h"
#include "worker/comm/bootstrap/await_ranks.h"

namespace ddprun::comm {
namespace {

bool takes_several() {
#if DDPRUN_NCCL_HAS_SCALABLE
  return api().ncclCommInitRankScalable != nullptr;
#else
  return false;
#endif
}

}  // namespace

std::vector<int> makers_of_ids(int size, int ranks_per_id) {
  const int ids = divide_up(size, ranks_per_id);
  const int share = size / ids, larger = size % ids;  // the first so many shares have one rank more
  std::vector<int> makers;
  for (int id = 0; id < ids; ++id) makers.push_back(id * share + std::min(id, larger));
  return makers;
}

std::vector<ncclUniqueId> agree_on_ids(Store& store, const std::string& prefix, RankInfo rank_info, int device,
                                       int ranks_per_id, const std::atomic<bool>& interrupted, Deadline deadline) {
  std::vector<RankKey> keys;
  for (const int maker : makers_of_ids(rank_info.size, takes_several() ? ranks_per_id : rank_info.size))
    keys.push_back({maker, prefix + "nccl/" + std::to_string(maker)});
  for (const auto& [maker, key] : keys)
    if (maker == rank_info.rank) store.set(key, text_of(make_unique_id(device)), deadline);
  std::vector<ncclUniqueId> ids;
  for (const auto& text : await_ranks(store, keys, rank_info.size, interrupted, deadline))
    ids.push_back(unique_id_from(text));
  return ids;
}

}  // namespace ddprun::comm
