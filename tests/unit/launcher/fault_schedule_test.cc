#include "launcher/chaos/fault_schedule.h"

#include <string>
#include <utility>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using std::chrono::milliseconds;

namespace {

constexpr FaultSchedule::Time start{std::chrono::hours(1)};

// Returns the first faults with their times, taken when each is due.
std::vector<std::pair<FaultSchedule::Time, Fault>> first_faults(FaultSchedule schedule, int count) {
  std::vector<std::pair<FaultSchedule::Time, Fault>> faults;
  while (static_cast<int>(faults.size()) < count) {
    const auto time = schedule.next();
    CHECK_FALSE(schedule.take(time - milliseconds(1)));
    const auto fault = schedule.take(time);
    REQUIRE(fault);
    faults.emplace_back(time, *fault);
  }
  return faults;
}

std::vector<std::uint64_t> choices(const FaultPlan& plan, int node) {
  std::vector<std::uint64_t> all;
  for (const auto& [time, fault] : first_faults({plan, node, start}, 20))
    all.push_back(fault.choice ^ static_cast<std::uint64_t>((time - start).count()));
  return all;
}

}  // namespace

TEST_CASE("a list of faults has their intervals, the duration of freezes and a seed") {
  const auto plan = parse_faults("kill:29s,freeze:2m,freeze:1.5h/250ms,cut:5m,cut:20s/8s;seed=7");
  CHECK(plan.seed == 7);
  CHECK(plan.rules == std::vector<FaultRule>{{FaultKind::kill, std::chrono::seconds(29), {}},
                                             {FaultKind::freeze, std::chrono::minutes(2), std::chrono::seconds(10)},
                                             {FaultKind::freeze, std::chrono::minutes(90), milliseconds(250)},
                                             {FaultKind::cut, std::chrono::minutes(5), std::chrono::seconds(10)},
                                             {FaultKind::cut, std::chrono::seconds(20), std::chrono::seconds(8)}});
  CHECK((plan.has(FaultKind::cut) && !parse_faults("kill:1s").has(FaultKind::cut)));
  CHECK(parse_faults("kill:1s").seed == 0);
}

TEST_CASE("a list of faults that is none is refused with the part that is wrong") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"", "--chaos: : expected kill:TIME, freeze:TIME[/DURATION], cut:TIME[/DURATION], leave:TIME or join:TIME"},
      {"kill:1s,",
       "--chaos: : expected kill:TIME, freeze:TIME[/DURATION], cut:TIME[/DURATION], leave:TIME or join:TIME"},
      {"burn:1s",
       "--chaos: burn:1s: expected kill:TIME, freeze:TIME[/DURATION], cut:TIME[/DURATION], leave:TIME or join:TIME"},
      {"kill", "--chaos: kill: expected the mean time between two faults, as in kill:29s"},
      {"kill:5", "--chaos: 5: expected a time with its unit, such as 500ms, 29s, 2m or 1h"},
      {"kill:0s", "--chaos: 0s: expected a time with its unit, such as 500ms, 29s, 2m or 1h"},
      {"kill:-1s", "--chaos: -1s: expected a time with its unit, such as 500ms, 29s, 2m or 1h"},
      {"kill:nans", "--chaos: nans: expected a time with its unit, such as 500ms, 29s, 2m or 1h"},
      {"kill:9999h", "--chaos: 9999h: expected a year at most"},
      {"kill:1s/2s", "--chaos: kill:1s/2s: expected no duration: only a freeze and a cut have one"},
      {"kill:1s;seed=x", "--chaos: seed=x: expected seed=NUMBER"},
      {"kill:1s;seed=7 ", "--chaos: seed=7 : expected seed=NUMBER"},
      {"leave:1m/2s,join:1m", "--chaos: leave:1m/2s: expected no duration: only a freeze and a cut have one"},
      {"kill:1s,join:1m;seed=7", "--chaos: kill:1s,join:1m;seed=7: expected leave:TIME beside join:TIME"},
      {"kill:1s;7", "--chaos: 7: expected seed=NUMBER"},
  }));
  CHECK_THROWS_WITH(parse_faults(text), Catch::Contains(expected));
}

TEST_CASE("each fault follows the last one of its rule after half to one and a half of the interval") {
  const auto faults = first_faults({parse_faults("kill:10s;seed=3"), 0, start}, 1'000);
  auto last = start;
  for (const auto& [time, fault] : faults) {
    CHECK(fault.kind == FaultKind::kill);
    CHECK(time - last >= std::chrono::seconds(5));
    CHECK(time - last <= std::chrono::seconds(15));
    last = time;
  }
  const auto mean = std::chrono::duration<double>(last - start).count() / 1'000;
  CHECK(mean == Approx(10).margin(0.5));
}

TEST_CASE("a plan has the same faults at each run, and others with another seed or on another node") {
  const auto plan = parse_faults("kill:10s,freeze:7s;seed=1");
  CHECK(choices(plan, 0) == choices(plan, 0));
  CHECK(choices(plan, 0) != choices(plan, 1));
  CHECK(choices(plan, 0) != choices(parse_faults("kill:10s,freeze:7s;seed=2"), 0));
}

TEST_CASE("faults of several rules come in the order of their times") {
  int freezes = 0;
  auto last = start;
  for (const auto& [time, fault] : first_faults({parse_faults("kill:30s,freeze:10s/2s"), 0, start}, 400)) {
    CHECK(time >= last);
    last = time;
    if (fault.kind == FaultKind::freeze) ++freezes;
    CHECK(fault.duration == (fault.kind == FaultKind::freeze ? milliseconds(2'000) : milliseconds(0)));
  }
  CHECK(freezes > 270);
  CHECK(freezes < 330);
}

TEST_CASE(
    "a node that has left joins again after about the interval, without other faults meanwhile, and leaves again") {
  FaultSchedule schedule(parse_faults("kill:1s,leave:10s,join:40s"), 0, start);
  auto now = start;
  const auto take_until = [&](FaultKind kind) {
    for (int i = 0; i < 1'000; ++i) {
      now = schedule.next();
      if (schedule.take(now)->kind == kind) return true;
    }
    return false;
  };
  for (int i = 0; i < 20; ++i) {
    const auto in_job_since = now;
    REQUIRE(take_until(FaultKind::leave));
    CHECK(now - in_job_since >= std::chrono::seconds(5));
    CHECK(now - in_job_since <= std::chrono::seconds(15));
    const auto left = now;
    schedule.left(now);
    CHECK(schedule.away());
    now = schedule.next();
    CHECK(now - left >= std::chrono::seconds(20));
    CHECK(now - left <= std::chrono::seconds(60));
    CHECK(schedule.take(now)->kind == FaultKind::join);
    schedule.joined(now);
    CHECK_FALSE(schedule.away());
    CHECK(schedule.next() >= now + milliseconds(500));  // a kill that was due meanwhile
  }
}

TEST_CASE("a node that has left for good gets no fault, and one in the job never a join") {
  FaultSchedule schedule(parse_faults("kill:1s,leave:10s"), 0, start);
  schedule.left(start);
  CHECK(schedule.next() == FaultSchedule::Time::max());
  CHECK_FALSE(schedule.take(start + std::chrono::hours(1)));
  for (const auto& [time, fault] : first_faults({parse_faults("leave:1h,join:1ms"), 0, start}, 50))
    CHECK(fault.kind == FaultKind::leave);
}
