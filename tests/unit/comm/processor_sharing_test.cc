#include "worker/comm/backends/shm/processor_sharing.h"

#include <sched.h>
#include <vector>

#include "worker/comm/backends/shm/segment_layout.h"
#include "tests/support/catch.h"

using namespace ddprun::comm;

namespace {

cpu_set_t affinity() {
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof(set), &set) == 0);
  return set;
}

std::vector<int> processors_of(const cpu_set_t& set) {
  std::vector<int> all;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(static_cast<std::size_t>(i), &set)) all.push_back(i);
  return all;
}

// Lets the calling thread run on that processor alone, until the end of the scope.
class OnProcessor {
 public:
  explicit OnProcessor(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(processor), &one);
    REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
  }
  ~OnProcessor() { ::sched_setaffinity(0, sizeof(before_), &before_); }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

 private:
  const cpu_set_t before_ = affinity();
};

// Two ranks, of which rank 1 last ran on that processor.
class TwoRanks {
 public:
  explicit TwoRanks(int peers_processor) {
    const OnProcessor there(peers_processor);
    peer().record();
  }
  LastProcessor& peer() { return layout_.rank(1).processor; }
  LastProcessor& own() { return layout_.rank(0).processor; }
  bool may_spin() { return sharing_.may_spin(peer()); }

 private:
  static constexpr std::size_t slot_bytes = 4096;
  SegmentLayout layout_{SharedSegment::create(SegmentLayout::bytes_for(2, slot_bytes)), 2, slot_bytes};
  ProcessorSharing sharing_{layout_, 0};
};

TEST_CASE("a rank spins where its peer is not known to run on its processor") {
  const auto processors = processors_of(affinity());
  const OnProcessor here(processors.front());
  SECTION("the peer has not said where it runs") {
    SegmentLayout layout(SharedSegment::create(SegmentLayout::bytes_for(2, 4096)), 2, 4096);
    CHECK(ProcessorSharing(layout, 0).may_spin(layout.rank(1).processor));
  }
  SECTION("the peer runs elsewhere") {
    if (processors.size() < 2) SKIP("one processor");
    TwoRanks ranks(processors.back());
    CHECK(ranks.may_spin());
    CHECK(ranks.own().number() == processors.front());
  }
}

TEST_CASE("a rank that shares the only processor with its peer does not spin") {
  const int processor = processors_of(affinity()).front();
  const OnProcessor here(processor);
  TwoRanks ranks(processor);
  CHECK_FALSE(ranks.may_spin());
}

TEST_CASE("a rank moves to another processor than its peer's and keeps its affinity mask") {
  const auto before = affinity();
  const int processor = processors_of(before).front();
  if (CPU_COUNT(&before) < 2) SKIP("one processor");
  TwoRanks ranks(processor);
  { const OnProcessor here(processor); }
  CHECK(ranks.may_spin());
  CHECK(ranks.own().number() != processor);
  const auto after = affinity();
  CHECK(CPU_EQUAL(&before, &after));
}

}  // namespace
