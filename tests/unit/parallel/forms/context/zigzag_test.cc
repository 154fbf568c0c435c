#include "worker/parallel/forms/context/zigzag.h"

#include <vector>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

Tensor counted(std::int64_t positions) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(positions));
  for (std::int64_t i = 0; i < positions; ++i) numbers[static_cast<std::size_t>(i)] = i;
  return Tensor::from(numbers, {1, positions});
}

std::vector<std::int64_t> positions_of(int rank, int ranks, std::int64_t all) {
  const Tensor own = own_positions(counted(all), 1, rank, ranks);
  return {own.data<std::int64_t>(), own.data<std::int64_t>() + own.numel()};
}

}  // namespace

TEST_CASE("a rank has a piece from the front and the one as far from the back") {
  CHECK(positions_of(0, 2, 8) == std::vector<std::int64_t>{0, 1, 6, 7});
  CHECK(positions_of(1, 2, 8) == std::vector<std::int64_t>{2, 3, 4, 5});
  CHECK(positions_of(2, 4, 8) == std::vector<std::int64_t>{2, 5});
  CHECK(positions_of(0, 1, 4) == std::vector<std::int64_t>{0, 1, 2, 3});
  CHECK_THROWS_WITH(own_positions(counted(6), 1, 0, 2),
                    "6 positions are no multiple of 4, twice the number of context-parallel ranks");
}

// The comparison is with the positions themselves.
TEST_CASE("ranges of queries and keys are what causality lets them see, as many pairs at each rank") {
  constexpr std::int64_t piece = 3;
  for (const int ranks : {2, 3, 4, 8})
    for (int rank = 0; rank < ranks; ++rank)
      for (int owner = 0; owner < ranks; ++owner) {
        if (rank == owner) continue;
        CAPTURE(ranks, rank, owner);
        const auto queries = positions_of(rank, ranks, 2 * ranks * piece),
                   keys = positions_of(owner, ranks, 2 * ranks * piece);
        const SeenPositions seen = seen_positions(rank, owner, piece);
        CHECK(seen.queries.length * seen.keys.length == 2 * piece * piece);
        const auto within = [](const PositionRange& range, std::size_t i) {
          const auto at = static_cast<std::int64_t>(i);
          return at >= range.start && at < range.start + range.length;
        };
        bool agrees = true;
        for (std::size_t q = 0; q < queries.size(); ++q)
          for (std::size_t k = 0; k < keys.size(); ++k)
            agrees = agrees && (within(seen.queries, q) && within(seen.keys, k)) == (keys[k] <= queries[q]);
        CHECK(agrees);
      }
}
