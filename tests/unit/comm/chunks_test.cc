#include "ddprun/worker/comm/backends/hierarchical/chunks.h"

#include "tests/support/catch.h"

using ddprun::comm::Chunk;
using ddprun::comm::chunks_of_buffer;

TEST_CASE("pieces cover a buffer exactly once and divide evenly among their leaders") {
  for (const std::size_t count : {1u, 7u, 16'383u, 16'384u, 70'001u, 1'000'003u, 5'000'000u}) {
    for (const int leaders : {1, 2, 3, 8}) {
      INFO(count << " elements, " << leaders << " leaders");
      std::vector<int> covered(count);
      bool even = true;
      for (const auto& piece : chunks_of_buffer(count, 4, leaders)) {
        even = even && piece.slice() * static_cast<std::size_t>(piece.leaders) == piece.count;
        for (std::size_t i = 0; i < piece.count; ++i) ++covered[piece.first + i];
      }
      CHECK(even);
      CHECK(covered == std::vector<int>(count, 1));
    }
  }
}

TEST_CASE("a small buffer is one piece of one leader, a large one gives every leader a slice of many") {
  const auto small = chunks_of_buffer(1000, 4, 4);
  REQUIRE(small.size() == 1);
  CHECK(small[0].leaders == 1);
  const auto large = chunks_of_buffer(16 << 20, 4, 2);
  CHECK(large.size() >= 8);
  for (const auto& piece : large) CHECK(piece.leaders == 2);
}
