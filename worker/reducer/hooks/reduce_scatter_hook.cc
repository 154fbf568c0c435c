#include "worker/reducer/hooks/reduce_scatter_hook.h"

#include "worker/reducer/shards.h"

namespace ddprun {

std::unique_ptr<CommHook> make_reduce_scatter_hook(ProcessGroup& group) {
  return make_comm_hook([&group](const GradBucket& bucket) {
    const Span all = bucket.span;
    const Shard own = shard_of(all.count, group.rank(), group.size());
    auto* start = static_cast<std::byte*>(all.data) + own.begin * size_of(all.dtype);
    return group.reduce_scatterv(all, {start, own.count(), all.dtype}, shard_counts(all.count, group.size()),
                                 ReduceOp::average);
  });
}

}  // namespace ddprun
