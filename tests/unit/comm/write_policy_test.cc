#include "worker/comm/backends/shm/write_policy.h"

#include <map>
#include <set>

#include "tests/support/catch.h"

using namespace ddprun::comm;
using namespace std::chrono_literals;
using Way = WritePolicy::Way;

namespace {

constexpr WritePolicy::Kind sums{OpKind::allreduce, 1 << 20, 4};
constexpr int series = sums.turn + WritePolicy::measured_trials;

// Successive operations, each of which takes as long as the test says for its way of writing.
struct Operations {
  WritePolicy policy;
  std::map<Way, WritePolicy::Duration> took{{Way::into_caches, 40us}, {Way::past_caches, 100us}};
  std::map<Way, int> counts;

  WritePolicy::Choice run(const WritePolicy::Kind& kind = sums) {
    const auto choice = policy.choose(kind);
    policy.end(kind, took.at(choice.way));
    ++counts[choice.way];
    return choice;
  }
  void run_series(int count) {
    for (int i = 0; i < count * series; ++i) run();
  }
};

}  // namespace

TEST_CASE("the quicker way of writing is taken between the trials") {
  const auto quicker = GENERATE(Way::into_caches, Way::past_caches);
  Operations operations;
  operations.took[quicker] = 10us;
  operations.run_series(WritePolicy::first_series + 2);
  operations.counts.clear();
  operations.run_series(10);
  CHECK(operations.counts[quicker] == 10 * series);
  operations.run_series(1000);
  CHECK(operations.counts[quicker] > 0.97 * 1010 * series);
}

TEST_CASE("a way that becomes quicker is found at the next series of trials") {
  Operations operations;
  operations.run_series(WritePolicy::second_series + 2);
  operations.took = {{Way::into_caches, 840us}, {Way::past_caches, 100us}};
  operations.run_series(WritePolicy::series_interval - WritePolicy::second_series);
  operations.counts.clear();
  operations.run_series(100);
  CHECK(operations.counts[Way::into_caches] == 0);
}

// Each series writes all of the memory in one way before it measures that way; the memory is new at first.
TEST_CASE("only the last trials of each way are measured") {
  Operations operations;
  std::set<int> measured;
  for (int i = 0; i < 40; ++i)
    if (operations.run().measured) measured.insert(i);
  CHECK(measured == std::set<int>{10, 11, 16, 17});
}

TEST_CASE("one slow trial of a way decides nothing") {
  Operations operations;
  for (int i = 0; i < 40; ++i) {
    operations.took[Way::into_caches] = i == 10 ? 10ms : 40us;
    operations.run();
  }
  CHECK(operations.policy.choose(sums).way == Way::into_caches);
}

TEST_CASE("ranks that measure different durations make the same trials") {
  Operations one, other;
  other.took = {{Way::into_caches, 840us}, {Way::past_caches, 100us}};
  for (int i = 0; i < 5000; ++i) {
    const auto choice = one.run(), of_other = other.run();
    REQUIRE(choice.measured == of_other.measured);
    if (choice.measured) REQUIRE(choice.way == of_other.way);
  }
}

TEST_CASE("operations of about one size that take turns with other places are measured apart") {
  Operations operations;
  const WritePolicy::Kind often{OpKind::allreduce, 64 << 10, 30}, seldom{OpKind::allreduce, 100 << 10, 20};
  for (int i = 0; i < 400; ++i) {
    operations.run(often);
    operations.run(seldom);
  }
  CHECK(operations.policy.choose(often).way == Way::into_caches);
  CHECK(operations.policy.choose(seldom).way == Way::into_caches);
}

TEST_CASE("kinds and sizes of operations are decided by themselves, at first as the latest decision") {
  Operations operations;
  operations.took[Way::past_caches] = 10us;
  operations.run_series(3);
  const WritePolicy::Kind broadcasts{OpKind::broadcast, 1 << 20, 4}, small{OpKind::allreduce, 1 << 15, 4};
  CHECK(operations.policy.choose(broadcasts).way == Way::past_caches);
  CHECK(operations.policy.choose(small).way == Way::past_caches);
  operations.took[Way::into_caches] = 1us;
  for (int i = 0; i < 3 * series; ++i) operations.run(broadcasts);
  CHECK(operations.policy.choose(broadcasts).way == Way::into_caches);
  CHECK(operations.policy.choose(sums).way == Way::past_caches);
}
