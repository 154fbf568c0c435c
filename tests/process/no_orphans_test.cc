#include <array>
#include <csignal>
#include <random>

#include "tests/process/launch.h"
#include "tests/support/catch.h"

// Whatever is killed, and whenever in the life of the job (its first milliseconds included), nothing of it is left.
using namespace ddprun::testing;

namespace {

struct Blow {
  const char* name;
  int signal_number;
  bool whole_group;
};
constexpr std::array blows{Blow{"kill -9 of ddprun", SIGKILL, false}, Blow{"kill -9 of its group", SIGKILL, true},
                           Blow{"Ctrl-C", SIGINT, true}, Blow{"SIGTERM", SIGTERM, false}};

// Workers that ignore SIGTERM and have children of their own.
Words hard_to_stop() {
  return {"ignore=15", "ignore=2", "fork=plain", "fork=setsid", "pause"};
}

void strike(const Blow& blow, std::chrono::microseconds moment) {
  const Marker marker;
  Child child(command(two_workers({"--shutdown_timeout=1"}), hard_to_stop()), marker.variables());
  const auto start = ddprun::Deadline::in(moment);
  child.wait_until([&] { return start.expired(); }, "the moment");
  ::kill(blow.whole_group ? -child.pid() : child.pid(), blow.signal_number);
  child.wait_until([&] { return marker.processes() == 0; }, "end of every process");
}

}  // namespace

TEST_CASE("fifty jobs struck at random moments leave nothing") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  // The job is up after some ten milliseconds: half of the blows fall before, half after.
  std::uniform_int_distribution<int> moment_us(0, 30000);
  for (int round = 0; round < 50; ++round) {
    const auto& blow = blows[static_cast<std::size_t>(round) % blows.size()];
    const std::chrono::microseconds moment(moment_us(random));
    INFO(blow.name << " after " << moment.count() << " us, round " << round);
    CHECK_NOTHROW(strike(blow, moment));
  }
}
