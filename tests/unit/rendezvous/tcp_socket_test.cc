#include "rendezvous/store/tcp_socket.h"

#include <csignal>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "common/error.h"
#include "common/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/processes.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

using Clock = Deadline::Clock;
constexpr auto time_limit = 300ms, stop = 400ms;

// Waits for a reply that does not come. Returns whether that took so much longer than the time limit.
bool waits_longer_by(Clock::duration time) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const UniqueFd own(ends[0]), peer(ends[1]);
  const auto deadline = Deadline::in(time_limit);
  char byte = 0;
  try {
    rendezvous::receive_some(own.get(), &byte, 1, deadline);
  } catch (const Error& error) {
    return error.code() == Errc::timeout && Clock::now() >= *deadline.when() + time;
  }
  return false;
}

// Returns the state of a process as proc_pid_stat(5) names it.
char state_of(pid_t process) {
  const auto text = testing::proc_text(std::to_string(process), "stat");
  return text.at(text.rfind(')') + 2);
}

// Stops a process that waits, for longer than its time limit. Returns whether it then went on for another limit; it
// cannot if it was stopped after its wait.
bool goes_on_after_stop() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(waits_longer_by(stop + time_limit) ? 0 : 1);
  REQUIRE(child > 0);
  while (state_of(child) != 'S' && state_of(child) != 'Z') std::this_thread::yield();
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(time_limit + stop);
  ::kill(child, SIGCONT);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a wait for a reply that ends late, since the process was stopped, goes on") {
  bool goes_on = false;
  for (int tries = 0; tries < 5 && !goes_on; ++tries) goes_on = goes_on_after_stop();
  CHECK(goes_on);
}

TEST_CASE("a wait that begins after its deadline is not prolonged") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd own(ends[0]), peer(ends[1]);
  char byte = 0;
  const auto begin = Clock::now();
  for (const auto deadline : {begin - 60s, Clock::time_point::min()})
    CHECK_THROWS_AS(rendezvous::receive_some(own.get(), &byte, 1, Deadline::at(deadline)), Error);
  CHECK(Clock::now() < begin + 60s);
}
