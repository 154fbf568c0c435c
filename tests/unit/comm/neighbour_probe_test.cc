#include "ddprun/worker/comm/health/neighbour_probe.h"

#include "ddprun/rendezvous/store/memory_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr int size = 64;
const NeighbourProbe::Clock::time_point start{1000h};

// What rank 0 sees of a group; no time passes but what a test says.
struct Watched {
  RankRecords records{std::make_shared<MemoryStore>(), "group/", size, 10s};
  NeighbourProbe watch{records, 0, 5s, 1s, [](int) { return ""; }};

  void publish(int first, int last, bool left) {
    for (int rank = first; rank <= last; ++rank) records.publish(rank, {.beat = 1, .left = left, .size = size});
  }
  // All that is due at this moment; one look more than ranks is enough.
  void look_at(NeighbourProbe::Clock::time_point now) {
    for (int i = 0; i <= size; ++i) CHECK_FALSE(watch.look(now, true));
  }
};

}  // namespace

TEST_CASE("all that left in a row are seen at one moment, up to one that is here") {
  Watched group;
  group.publish(1, 40, true);
  group.publish(41, size - 1, false);
  group.look_at(start);
  CHECK(group.watch.departed().size() == 40);
  CHECK(group.watch.watched() == 41);
  CHECK(group.watch.record());
  CHECK(group.watch.due() == start + 500ms);

  group.publish(41, 50, true);
  group.look_at(start + 499ms);
  CHECK(group.watch.watched() == 41);
  group.look_at(start + 500ms);
  CHECK(group.watch.watched() == 51);
}

TEST_CASE("who is left alone by all others watches nobody any more") {
  Watched group;
  group.publish(1, size - 1, true);
  group.look_at(start);
  CHECK(group.watch.departed().size() == size - 1);
  CHECK(group.watch.watched() == 0);
  CHECK(group.watch.due() == NeighbourProbe::Clock::time_point::max());
}
