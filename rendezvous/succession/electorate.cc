#include "rendezvous/succession/electorate.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

// A server that is no node of the set needs more than half of it, unless all of its nodes have ended.
bool half_of(const NodeSet& set, const std::string& server, const Electorate::Supporters& supports,
             const Electorate::Supporters& has_ended) {
  std::size_t counted = 0, supporting = 0;
  for (const auto& node : set.nodes) {
    if (node != server && has_ended(node)) continue;
    ++counted;
    if (node == server || supports(node)) ++supporting;
  }
  const bool member = std::ranges::find(set.nodes, server) != set.nodes.end();
  return counted == 0 || 2 * supporting >= counted + (member ? 0U : 1U);
}

}  // namespace

void Electorate::adopt(NodeSet next, ElectorateVersion confirmed) {
  confirm(confirmed);
  const bool known = !sets_.empty() && next.version <= sets_.back().version;
  if (known || next.version < confirmed_) return;
  const auto replaced = [&](const NodeSet& set) {
    return set.version.term == next.version.term && set.version > confirmed;
  };
  std::erase_if(sets_, replaced);
  sets_.push_back(std::move(next));
}

void Electorate::confirm(ElectorateVersion version) {
  if (version <= confirmed_) return;
  confirmed_ = version;
  std::erase_if(sets_, [&](const NodeSet& set) { return set.version < version; });
}

void Electorate::begin_term(std::uint64_t term, bool known) {
  NodeSet first{.version = {term, 1}, .nodes = known ? newest().nodes : std::vector<std::string>()};
  if (first.version <= newest().version) return;
  sets_.push_back(std::move(first));
}

std::set<std::string> Electorate::all_nodes() const {
  std::set<std::string> all;
  for (const auto& set : sets_) all.insert(set.nodes.begin(), set.nodes.end());
  return all;
}

bool Electorate::elects(const Supporters& supports) const {
  return complete() && std::ranges::all_of(sets_, [&](const auto& set) {
           return 2 * static_cast<std::size_t>(std::ranges::count_if(set.nodes, supports)) > set.nodes.size();
         });
}

bool Electorate::keeps(const std::string& server, const Supporters& supports, const Supporters& has_ended) const {
  return std::ranges::all_of(sets_, [&](const auto& set) { return half_of(set, server, supports, has_ended); });
}

bool Electorate::confirmed_keeps(const std::string& server, const Supporters& supports,
                                 const Supporters& has_ended) const {
  return complete() && half_of(sets_.front(), server, supports, has_ended);
}

}  // namespace ddprun
