#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "worker/parallel/sharding/redistribution_plan.h"
#include "tests/unit/parallel/sharding/seeded_layouts.h"

namespace ddprun::testing {

// Returns a redistribution between layouts of up to that many ranks each, where some ranks of the first are gone,
// processes are numbered otherwise and some ranks' files exist.
inline sharding::Redistribution random_redistribution(SeededLayouts random, int most_ranks) {
  sharding::Redistribution given{.tensors = random.specs(), .from = {}, .to = {}};
  const int before = random.between(1, most_ranks), after = random.between(1, most_ranks);
  given.from.placements = random.placements(given.tensors, random.mesh(before));
  given.to.placements = random.placements(given.tensors, random.mesh(after));
  if (random.one_in(2)) return given;
  // Survivors keep a process of the new group each, in another order; the others are newcomers.
  std::vector<int> numbers(static_cast<std::size_t>(after));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = numbers.size(); i > 1; --i)
    std::swap(numbers[i - 1], numbers[static_cast<std::size_t>(random.between(0, static_cast<int>(i) - 1))]);
  for (int rank = 0; rank < before; ++rank)
    given.from.processes.push_back(rank < after && !random.one_in(4) ? numbers[static_cast<std::size_t>(rank)]
                                                                     : sharding::absent);
  if (random.one_in(2)) {
    const int saved = random.between(1, most_ranks);
    given.files = sharding::StateLayout{random.placements(given.tensors, random.mesh(saved)), {}};
    for (int rank = 0; rank < saved; ++rank)
      given.files->processes.push_back(random.one_in(5) ? sharding::absent : random.between(0, after - 1));
  }
  return given;
}

inline sharding::Redistribution seeded_redistribution(std::uint64_t seed, int most_ranks) {
  return random_redistribution(SeededLayouts(seed), most_ranks);
}

// Returns the number of processes: without files, the ranks of both layouts; otherwise those that are to have parts.
inline int processes_of(const sharding::Redistribution& given) {
  const int after = given.to.placements[0].mesh->ranks();
  return given.from.processes.empty() ? std::max(after, given.from.placements[0].mesh->ranks()) : after;
}

// Returns the rank of a process in a layout, or absent.
inline int rank_of(const sharding::StateLayout& layout, int process) {
  const int ranks = layout.placements[0].mesh->ranks();
  if (layout.processes.empty()) return process < ranks ? process : sharding::absent;
  const auto found = std::ranges::find(layout.processes, process);
  return found == layout.processes.end() ? sharding::absent : static_cast<int>(found - layout.processes.begin());
}

}  // namespace ddprun::testing
