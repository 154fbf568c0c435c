// Which of the nodes without a part in a round stand by for a node that is lost.
#include <algorithm>
#include <string>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// To be called when nodes have come or gone, and when those of the round want it. A spare that has been asked stands by
// through all rounds in which it has no part; another one is asked only if that one goes or joins a round.
void MembershipState::ask_spares() {
  if (policy_.spares == 0 || phase_ != Phase::running || !all_members(&Node::wants_standby)) return;
  auto left = policy_.spares - static_cast<int>(std::ranges::count_if(
                                   nodes_, [](const auto& entry) { return entry.second.standby_asked; }));
  std::vector<std::string> to;
  for (const auto& id : select_members(nodes_.size())) {
    Node& node = nodes_.at(id);
    if (node.member || node.standby_asked || left <= 0) continue;
    node.standby_asked = true;
    to.push_back(id);
    --left;
  }
  post(std::move(to), StandbyAsked{.generation = round_.generation, .world_size = round_.world_size});
}

}  // namespace ddprun
