#include "worker/parallel/sharding/part_numbers.h"

#include <map>
#include <set>
#include <string>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddprun::sharding {
namespace {

// Returns a text that is the same for placements with which the same ranks have the same parts.
std::string kind_of(const Placement& placement) {
  std::string kind = placement.stage ? fmt::format("stages {};", fmt::join(placement.stage->coordinates, ",")) : "";
  for (const Shard& shard : placement.shards) kind += fmt::format("shard {} {};", shard.axis, shard.copies);
  if (const auto* flat = std::get_if<FlatShard>(&placement.local))
    kind += fmt::format("flat {};", fmt::join(flat->axes, ","));
  if (const auto* owner = std::get_if<Owner>(&placement.local))
    kind += fmt::format("owner {} {};", owner->axis, owner->coordinate);
  return kind;
}

}  // namespace

std::vector<int> part_numbers(const std::vector<PlacedTensor>& tensors, int ranks) {
  constexpr int nothing = -1;
  std::vector<std::vector<int>> first_holders(static_cast<std::size_t>(ranks));  // by rank, for each kind
  std::set<std::string> kinds;
  for (const PlacedTensor& tensor : tensors) {
    if (!kinds.insert(kind_of(tensor.placement())).second) continue;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto holders = tensor.holders(rank);
      const bool exists = !holders.empty() && tensor.exists_at(rank);
      first_holders[static_cast<std::size_t>(rank)].push_back(exists ? holders.front() : nothing);
    }
  }
  std::map<std::vector<int>, int> numbers;
  std::vector<int> result;
  for (const auto& holders : first_holders)
    result.push_back(numbers.emplace(holders, static_cast<int>(numbers.size())).first->second);
  return result;
}

}  // namespace ddprun::sharding
