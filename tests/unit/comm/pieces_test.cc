#include "ddprun/worker/comm/hierarchical/pieces.h"

#include "tests/support/catch.h"

using ddprun::comm::Piece;
using ddprun::comm::pieces_of;

TEST_CASE("pieces cover a buffer exactly once and divide evenly among their leaders") {
  for (const std::size_t count : {1u, 7u, 16'383u, 16'384u, 70'001u, 1'000'003u, 5'000'000u}) {
    for (const int leaders : {1, 2, 3, 8}) {
      INFO(count << " elements, " << leaders << " leaders");
      std::vector<int> covered(count);
      bool even = true;
      for (const auto& piece : pieces_of(count, 4, leaders)) {
        even = even && piece.slice() * static_cast<std::size_t>(piece.leaders) == piece.count;
        for (std::size_t i = 0; i < piece.count; ++i) ++covered[piece.first + i];
      }
      CHECK(even);
      CHECK(covered == std::vector<int>(count, 1));
    }
  }
}

TEST_CASE("a small buffer is one piece of one leader, a large one gives every leader a slice of many") {
  const auto small = pieces_of(1000, 4, 4);
  REQUIRE(small.size() == 1);
  CHECK(small[0].leaders == 1);
  const auto large = pieces_of(16 << 20, 4, 2);
  CHECK(large.size() >= 8);
  for (const auto& piece : large) CHECK(piece.leaders == 2);
}
