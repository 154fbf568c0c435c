#include "worker/comm/backends/hierarchical/chunks.h"

#include "tests/support/catch.h"

using ddprun::comm::Chunk;
using ddprun::comm::chunks_of_buffer;

TEST_CASE("chunks cover a buffer exactly once and divide evenly among their leaders") {
  for (const std::size_t count : {1u, 7u, 16'383u, 16'384u, 70'001u, 1'000'003u, 5'000'000u}) {
    for (const int leaders : {1, 2, 3, 8}) {
      INFO(count << " elements, " << leaders << " leaders");
      std::vector<int> covered(count);
      bool even = true;
      for (const auto& chunk : chunks_of_buffer(count, 4, leaders)) {
        even = even && chunk.slice() * static_cast<std::size_t>(chunk.leaders) == chunk.count;
        for (std::size_t i = 0; i < chunk.count; ++i) ++covered[chunk.first + i];
      }
      CHECK(even);
      CHECK(covered == std::vector<int>(count, 1));
    }
  }
}

TEST_CASE("a small buffer is one chunk of one leader, a large one is many chunks with a slice for every leader") {
  const auto small = chunks_of_buffer(1000, 4, 4);
  REQUIRE(small.size() == 1);
  CHECK(small[0].leaders == 1);
  const auto large = chunks_of_buffer(16 << 20, 4, 2);
  CHECK(large.size() >= 8);
  for (const auto& chunk : large) CHECK(chunk.leaders == 2);
}
