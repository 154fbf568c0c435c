#include "worker/parallel/forms/data/local_sgd/fragment_schedule.h"

#include <set>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a whole model is averaged after the last step of each period") {
  const FragmentSchedule schedule{.period = 3, .fragments = 1, .delay = 0};
  for (std::int64_t step = -2; step <= 9; ++step) {
    CHECK(schedule.begins_after(step).has_value() == (step > 0 && step % 3 == 0));
    CHECK(schedule.ends_after(step) == schedule.begins_after(step));
  }
}

TEST_CASE("each fragment has a step of its own in every period, at equal distances") {
  for (std::int64_t period = 1; period <= 12; ++period) {
    for (std::int64_t fragments = 1; fragments <= period; ++fragments) {
      const FragmentSchedule schedule{.period = period, .fragments = fragments, .delay = 0};
      std::int64_t last = 0;
      for (std::int64_t cycle = 0; cycle < 2; ++cycle) {
        std::set<std::int64_t> seen;
        for (std::int64_t step = cycle * period + 1; step <= (cycle + 1) * period; ++step) {
          const auto fragment = schedule.begins_after(step);
          if (!fragment) continue;
          seen.insert(*fragment);
          CHECK(std::abs(step - last - period / fragments) <= 1);
          last = step;
        }
        CHECK(seen.size() == static_cast<std::size_t>(fragments));
        CHECK(*seen.rbegin() == fragments - 1);
      }
    }
  }
}

TEST_CASE("an average is used as many steps after its beginning as the delay says") {
  const FragmentSchedule schedule{.period = 6, .fragments = 3, .delay = 5};
  for (std::int64_t step = 1; step <= 20; ++step) CHECK(schedule.ends_after(step + 5) == schedule.begins_after(step));
  for (std::int64_t step = 1; step <= 6; ++step) CHECK_FALSE(schedule.ends_after(step).has_value());
}

TEST_CASE("fragments are tensors that follow one another, of about as many bytes") {
  using Places = std::vector<std::int64_t>;
  CHECK(fragments_of({10, 10, 10, 10}, 2) == Places{0, 0, 1, 1});
  CHECK(fragments_of({10, 10, 10, 10}, 4) == Places{0, 1, 2, 3});
  CHECK(fragments_of({30, 5, 5, 20}, 2) == Places{0, 1, 1, 1});
  CHECK(fragments_of({5, 5, 5}, 1) == Places{0, 0, 0});
  CHECK(fragments_of({1, 100, 1}, 3) == Places{0, 1, 2});
  CHECK(fragments_of({0, 0}, 2).size() == 2);
  CHECK(fragments_of({}, 2).empty());
}
