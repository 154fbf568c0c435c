#include "ddprun/worker/parallel/shard_groups.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/subgroups.h"

namespace ddprun {

ShardGroups::ShardGroups(ProcessGroup& all, int shard_size) : all_(all) {
  if (shard_size == 0 || shard_size == all.size()) return;
  if (shard_size > all.size() || all.size() % shard_size != 0)
    throw make_error(Errc::usage, "a shard group of {} ranks does not divide the {} ranks there are", shard_size,
                     all.size());
  own_shards_ = split(all, all.rank() / shard_size, all.rank());
  replicas_ = split(all, all.rank() % shard_size, all.rank());
}

}  // namespace ddprun
