#include "worker/reducer/shards.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("the parts of a bucket are in rank order, cover it and begin on borders of 16 elements") {
  for (const std::size_t elements : {0, 1, 16, 17, 48, 100, 1024, 4099}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      std::size_t at = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard own = shard_of(elements, rank, ranks);
        CHECK(own.begin == at);
        CHECK((own.begin % 16 == 0 || own.count() == 0));
        CHECK(own.count() == shard_counts(elements, ranks)[static_cast<std::size_t>(rank)]);
        at = own.end;
      }
      CHECK(at == elements);
    }
  }
  CHECK(shard_counts(96, 3) == Counts{32, 32, 32});
  CHECK(shard_counts(40, 3) == Counts{16, 16, 8});
}

TEST_CASE("ranges that have nothing in common have an empty intersection") {
  const Shard common = intersection({.begin = 4, .end = 20}, {.begin = 16, .end = 40});
  CHECK(common.begin == 16);
  CHECK(common.end == 20);
  CHECK(intersection({.begin = 0, .end = 4}, {.begin = 8, .end = 12}).count() == 0);
  CHECK(intersection({.begin = 8, .end = 12}, {.begin = 0, .end = 4}).count() == 0);
}
