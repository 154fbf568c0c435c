#include "launcher/workers/sleep_watch.h"

#include "tests/support/catch.h"

using namespace ddprun;
using std::chrono::milliseconds;

namespace {

constexpr pid_t process = 100;

SleepWatch::Time at(int ms) {
  return SleepWatch::Time{} + milliseconds(ms);
}

std::vector<ThreadSleep> asleep(std::uint64_t switches, pid_t thread = process) {
  return {{.thread = thread, .uninterruptible = true, .switches = switches}};
}

}  // namespace

TEST_CASE("a thread's sleep is read from its status, and both kinds of context switches count") {
  const auto thread = parse_thread_sleep(
      "Name:\tx\nState:\tD (disk sleep)\nTgid:\t7\nPid:\t9\nvoluntary_ctxt_switches:\t41\n"
      "nonvoluntary_ctxt_switches:\t2\n");
  CHECK(thread.thread == 9);
  CHECK(thread.uninterruptible);
  CHECK(thread.switches == 43);
  CHECK_FALSE(parse_thread_sleep("Name:\tD\nState:\tS (sleeping)\nPid:\t9\n").uninterruptible);
}

TEST_CASE("a sleep is found once it lasts for the limit, counted from when it was seen first") {
  SleepWatch watch(milliseconds(1000));
  CHECK_FALSE(watch.observe(process, asleep(5), at(0)));
  CHECK_FALSE(watch.observe(process, asleep(5), at(999)));
  const auto found = watch.observe(process, asleep(5), at(1000));
  REQUIRE(found);
  CHECK(found->thread == process);
  CHECK(found->slept == milliseconds(1000));
}

TEST_CASE("short sleeps one after the other are not a long one") {
  SleepWatch watch(milliseconds(1000));
  for (int i = 0; i < 20; ++i) CHECK_FALSE(watch.observe(process, asleep(static_cast<std::uint64_t>(i)), at(i * 400)));
}

TEST_CASE("a thread that ran in between, another process and a cleared watch begin anew") {
  SleepWatch watch(milliseconds(1000));
  watch.observe(process, asleep(5), at(0));
  watch.observe(process, {{.thread = process, .uninterruptible = false, .switches = 5}}, at(500));
  CHECK_FALSE(watch.observe(process, asleep(5), at(1200)));
  CHECK_FALSE(watch.observe(process + 1, asleep(5), at(1400)));
  CHECK(watch.observe(process, asleep(5), at(2200)));
  watch.clear();
  CHECK_FALSE(watch.observe(process, asleep(5), at(9000)));
}

TEST_CASE("of several threads the one that has slept longest is named") {
  SleepWatch watch(milliseconds(1000));
  watch.observe(process, asleep(5, 101), at(0));
  auto both = asleep(7, 102);
  both.push_back(asleep(5, 101).front());
  watch.observe(process, both, at(300));
  CHECK(watch.observe(process, both, at(2000))->thread == 101);
}
