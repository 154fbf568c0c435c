#include "rendezvous/membership/worker_names.h"

#include <algorithm>
#include <cstddef>

#include "rendezvous/recovery/recovery_keys.h"

namespace ddprun {

void name_workers(RoundMember& member, std::uint64_t generation) {
  member.workers.clear();
  for (int local_rank = 0; local_rank < member.nproc; ++local_rank)
    member.workers.push_back(member_name(member.first_rank + local_rank, generation));
}

void keep_names(Round& round, const Round& former, const std::set<std::string>& joining) {
  for (auto& member : round.members) {
    const auto before = std::ranges::find(former.members, member.node_id, &RoundMember::node_id);
    if (before == former.members.end() || joining.contains(member.node_id))
      name_workers(member, round.group_generation);
    else
      member.workers = before->workers;
  }
}

void rename_replaced(Round& round, const WorkersReplaced& replaced) {
  for (const auto& failure : replaced.failures) {
    if (failure.group_rank < 0 || failure.group_rank >= static_cast<int>(round.members.size())) continue;
    auto& workers = round.members[static_cast<std::size_t>(failure.group_rank)].workers;
    if (failure.local_rank < 0 || failure.local_rank >= static_cast<int>(workers.size())) continue;
    workers[static_cast<std::size_t>(failure.local_rank)] = member_name(failure.rank, replaced.group_generation);
  }
}

}  // namespace ddprun
