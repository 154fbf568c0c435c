#include "worker/comm/health/neighbour_probe.h"

#include "rendezvous/store/memory_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr int size = 64;
const NeighbourProbe::Clock::time_point start{1000h};

// The probe of rank 0. Tests set the time.
struct Group {
  RankRecords records{std::make_shared<MemoryStore>(), "group/", size, 10s};
  NeighbourProbe probe{records, 0, 5s, 1s};

  void publish(int first, int last, bool left) {
    for (int rank = first; rank <= last; ++rank) records.publish(rank, {.beat = 1, .left = left, .size = size});
  }
  // Makes all observations that are due at this time: at most one more than there are ranks.
  void look_at(NeighbourProbe::Clock::time_point now) {
    for (int i = 0; i <= size; ++i) CHECK_FALSE(probe.look(now, true));
  }
};

}  // namespace

TEST_CASE("ranks in a row that left are all found at once, up to the first one that has not") {
  Group group;
  group.publish(1, 40, true);
  group.publish(41, size - 1, false);
  group.look_at(start);
  CHECK(group.probe.departed().size() == 40);
  CHECK(group.probe.watched() == 41);
  CHECK(group.probe.record());
  CHECK(group.probe.due() == start + 500ms);

  group.publish(41, 50, true);
  group.look_at(start + 499ms);
  CHECK(group.probe.watched() == 41);
  group.look_at(start + 500ms);
  CHECK(group.probe.watched() == 51);
}

TEST_CASE("the last rank of a group watches no other") {
  Group group;
  group.publish(1, size - 1, true);
  group.look_at(start);
  CHECK(group.probe.departed().size() == size - 1);
  CHECK(group.probe.watched() == 0);
  CHECK(group.probe.due() == NeighbourProbe::Clock::time_point::max());
}

TEST_CASE("ranks without heartbeats are observed once the bound has passed, and not after a late heartbeat") {
  Group group;
  group.publish(0, size - 1, false);
  auto now = start;
  std::optional<Silence> silence;
  for (; !silence && now < start + 10s; now += 500ms) silence = group.probe.look(now, true);
  REQUIRE(silence);
  CHECK(now - start > 4s);
  CHECK(silence->seconds >= 4.5);
  REQUIRE(silence->observations.size() == size);
  for (const int rank : {1, 2}) {
    const auto& [before, latest] = silence->observations[static_cast<std::size_t>(rank)];
    CHECK(before == latest);
  }
  group.records.publish(1, {.beat = 2, .size = size});
  CHECK_FALSE(group.probe.look(now, true));
}
