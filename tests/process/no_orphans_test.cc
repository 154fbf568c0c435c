#include <array>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/process/training.h"
#include "tests/support/catch.h"

// No process of a job remains, whichever process is killed at whatever time, including the job's first milliseconds.
using namespace ddprun::testing;

namespace {

enum class Target { ddprun, its_group, a_worker };
struct Attack {
  const char* name;
  int signal_number;
  Target target;
};
constexpr std::array attacks{Attack{"kill -9 of ddprun", SIGKILL, Target::ddprun},
                             Attack{"kill -9 of its group", SIGKILL, Target::its_group},
                             Attack{"kill -9 of a worker", SIGKILL, Target::a_worker},
                             Attack{"Ctrl-C", SIGINT, Target::its_group}, Attack{"SIGTERM", SIGTERM, Target::ddprun}};

// Workers that ignore SIGTERM and have children of their own.
Words hard_to_stop() {
  return {"ignore=15", "ignore=2", "fork=plain", "fork=setsid", "pause"};
}

pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');  // then: state, parent
  return name_end == std::string::npos ? -1 : std::atoi(text.c_str() + name_end + 4);
}

// A worker, not one of its children, which have the same environment.
pid_t some_worker(const Marker& marker, pid_t agent) {
  for (const auto pid : workers_of(marker))
    if (parent_of(pid) == agent) return pid;
  return -1;
}

void kill_at(const Attack& attack, std::chrono::microseconds moment) {
  const Marker marker;
  Child child(command(two_workers({"--shutdown_timeout=1"}), hard_to_stop()), marker.variables());
  const auto start = ddprun::Deadline::in(moment);
  child.wait_until([&] { return start.expired(); }, "the moment");
  if (attack.target == Target::a_worker) {
    pid_t worker = -1;
    child.wait_until([&] { return (worker = some_worker(marker, child.pid())) > 0; }, "a worker");
    ::kill(worker, attack.signal_number);
  } else {
    ::kill(attack.target == Target::its_group ? -child.pid() : child.pid(), attack.signal_number);
  }
  child.wait_until([&] { return marker.processes() == 0; }, "end of every process");
}

}  // namespace

TEST_CASE("fifty jobs killed at random moments leave nothing") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  // The workers run after some ten milliseconds: half of the signals come before, half after.
  std::uniform_int_distribution<int> moment_us(0, 30000);
  for (int round = 0; round < 50; ++round) {
    const auto& attack = attacks[static_cast<std::size_t>(round) % attacks.size()];
    const std::chrono::microseconds moment(moment_us(random));
    INFO(attack.name << " after " << moment.count() << " us, round " << round);
    CHECK_NOTHROW(kill_at(attack, moment));
  }
}
