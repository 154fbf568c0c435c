#include "launcher/workers/watchdog_timers.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

std::string line(int pid, const std::string& scope, double expires, int signal_number = 9) {
  return fmt::format(R"({{"version": 1, "pid": {}, "scope_id": "{}", "expiration_time": {}, "signal": {}}})", pid,
                     scope, expires, signal_number);
}

}  // namespace

TEST_CASE("a timer that is not released in time expires once") {
  WatchdogTimers timers;
  CHECK_FALSE(timers.next());
  timers.request(line(50, "step", 100.5));
  CHECK(timers.next() == 100.5);
  CHECK(timers.expire(100.4).empty());
  const auto expired = timers.expire(100.5);
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].pid == 50);
  CHECK(expired[0].scope == "step");
  CHECK(expired[0].signal_number == 9);
  CHECK(timers.expire(200).empty());
  CHECK_FALSE(timers.next());
}

TEST_CASE("a timer is released by its process and scope, and replaced by a later one") {
  WatchdogTimers timers;
  timers.request(line(50, "a", 10));
  timers.request(line(50, "b", 10));
  timers.request(line(51, "a", 10));
  timers.request(line(50, "a", -1, 0));
  timers.request(line(51, "a", 30));
  const auto expired = timers.expire(20);
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].scope == "b");
  CHECK(timers.next() == 30);
  timers.clear();
  CHECK_FALSE(timers.next());
}

TEST_CASE("the earliest timer with a signal is returned for a process with several expired ones") {
  WatchdogTimers timers;
  timers.request(line(50, "quiet", 1, 0));
  timers.request(line(50, "late", 3, 15));
  timers.request(line(50, "early", 2, 10));
  timers.request(line(60, "quiet", 1, 0));
  const auto expired = timers.expire(5);
  REQUIRE(expired.size() == 2);
  CHECK(expired[0].scope == "early");
  CHECK(expired[0].signal_number == 10);
  CHECK(expired[1].signal_number == 0);
}

TEST_CASE("an invalid request is an error that names the field") {
  WatchdogTimers timers;
  CHECK_THROWS_WITH(timers.request("{torn"), "a timer request is no JSON object: {torn");
  CHECK_THROWS_WITH(timers.request("{}"), "a timer request has no string scope_id");
  CHECK_THROWS_WITH(timers.request(R"({"scope_id": "a", "pid": "x"})"), "a timer request has no number pid");
  CHECK_THROWS_WITH(timers.request(line(-1, "a", 1)), "a timer request names process -1");
  CHECK_THROWS_WITH(timers.request(line(0, "a", 1)), "a timer request names process 0");
  CHECK_THROWS_WITH(timers.request(line(5, "a", 1, 65)), "a timer request names signal 65");
  CHECK_FALSE(timers.next());
}
