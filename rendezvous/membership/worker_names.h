#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"

// RoundMember::workers, which server and agents keep by the same functions. Pure.
namespace ddprun {

// The workers of the node start in this generation of their process group.
void name_workers(RoundMember& member, std::uint64_t generation);
// Those of the nodes that stay have the names that they had in the former round; those of nodes in joining start in
// round.group_generation.
void keep_names(Round& round, const Round& former, const std::set<std::string>& joining);
// Others have taken the places of those that have failed.
void rename_replaced(Round& round, const WorkersReplaced& replaced);

}  // namespace ddprun
