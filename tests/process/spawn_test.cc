#include "worker/comm/spawn.h"

#include <csignal>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/comm/init.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

Error failure_of(int n, const std::function<void(const WorkerEnv&)>& function) {
  try {
    spawn(n, function, {.grace = 1s});
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("spawn did not fail");
}

bool contains(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("spawned ranks form one group") {
  for (const int n : {1, 3}) {
    const testing::TempDir folder;
    spawn(n, [&](const WorkerEnv& env) {
      const auto world = init_process_group({.config = {.timeout = 30s}, .env = env});
      std::vector<std::int64_t> sum = {env.rank + 1};
      allreduce(world->group(), sum, ReduceOp::sum);
      std::ofstream(folder / std::to_string(env.rank)) << sum[0];
    });
    for (int rank = 0; rank < n; ++rank) {
      std::int64_t sum = 0;
      std::ifstream(folder / std::to_string(rank)) >> sum;
      CHECK(sum == n * (n + 1) / 2);
    }
  }
}

TEST_CASE("the failure of a rank ends the others, and is thrown with its number, code and message") {
  const auto error = failure_of(3, [](const WorkerEnv& env) {
    const auto world = init_process_group({.config = {.timeout = 30s}, .env = env});
    world->group().barrier()->wait();
    if (env.rank == 1) throw Error(Errc::io, "the disk is full");
    world->group().barrier()->wait();  // fails in the others: rank 1 has left
  });
  CHECK(error.code() == Errc::io);
  CHECK(contains(error, "rank 1 failed: the disk is full"));
}

TEST_CASE("ranks that ignore SIGTERM and use no group are ended, too") {
  const auto error = failure_of(2, [](const WorkerEnv& env) {
    if (env.rank == 1) ::_exit(7);
    ::signal(SIGTERM, SIG_IGN);
    while (true) ::pause();
  });
  CHECK(contains(error, "rank 1 failed: exited with code 7"));
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left
}

TEST_CASE("a rank killed by a signal is named with the signal") {
  const auto error = failure_of(2, [](const WorkerEnv& env) {
    const auto world = init_process_group({.config = {.timeout = 30s}, .env = env});
    world->group().barrier()->wait();
    if (env.rank == 0) ::raise(SIGKILL);
    world->group().barrier()->wait();
  });
  CHECK(contains(error, "rank 0 failed: ended by signal 9 (KILL)"));
}

TEST_CASE("a signal without a name is named by its number") {
  const auto error = failure_of(1, [](const WorkerEnv&) { ::raise(SIGRTMIN + 2); });
  CHECK(contains(error, "rank 0 failed: ended by signal " + std::to_string(SIGRTMIN + 2)));
}

TEST_CASE("spawn refuses a process that has threads, and a number of ranks below 1") {
  CHECK(failure_of(0, [](const WorkerEnv&) {}).code() == Errc::usage);
  std::mutex mutex;
  mutex.lock();
  std::thread thread([&] { const std::lock_guard wait(mutex); });
  const auto error = failure_of(2, [](const WorkerEnv&) {});
  mutex.unlock();
  thread.join();
  CHECK(error.code() == Errc::usage);
  CHECK(contains(error, "2 threads"));
}

TEST_CASE("ranks end with the process that spawned them") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t middle = ::fork();
  REQUIRE(middle >= 0);
  if (middle == 0) {
    ::close(ends[0]);
    spawn(2, [&](const WorkerEnv&) {
      const char ready = 'r';
      if (::write(ends[1], &ready, 1) != 1) ::_exit(1);
      while (true) ::pause();
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  char ready[2];
  REQUIRE(::read(ends[0], &ready[0], 1) == 1);
  REQUIRE(::read(ends[0], &ready[1], 1) == 1);
  ::kill(middle, SIGKILL);
  ::waitpid(middle, nullptr, 0);
  CHECK(::read(ends[0], ready, 1) == 0);  // end of file: every process with the other end is gone
  ::close(ends[0]);
}
