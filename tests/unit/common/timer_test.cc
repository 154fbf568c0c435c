#include "common/timer.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "tests/support/catch.h"

using namespace ddprun;
using std::chrono::hours;
using std::chrono::seconds;

namespace {

const auto past = Timer::Clock::now() - hours(1);

// A loop with two timers that are due. The handler of the second one is queued when the action of the first one runs.
struct Loop {
  boost::asio::io_context context;
  std::optional<Timer> first{context}, second{context};
  std::vector<std::string> ran;

  void run(const std::function<void()>& late) {
    first->run_at(past - seconds(1), late);
    second->run_at(past, [this] { ran.emplace_back("set first"); });
    context.run();
  }
};

}  // namespace

TEST_CASE("a timer runs its action once, at its time") {
  boost::asio::io_context loop;
  Timer timer(loop);
  int runs = 0;
  const auto time = Timer::Clock::now() + std::chrono::milliseconds(5);
  timer.run_at(time, [&] {
    ++runs;
    CHECK(Timer::Clock::now() >= time);
  });
  loop.run();
  CHECK(runs == 1);
}

TEST_CASE("the action of a timer that is due does not begin after the timer is cancelled, set anew or destroyed") {
  Loop loop;
  SECTION("undisturbed") {
    loop.run([] {});
    CHECK(loop.ran == std::vector<std::string>{"set first"});
  }
  SECTION("cancelled") {
    loop.run([&] { loop.second->cancel(); });
    CHECK(loop.ran.empty());
  }
  SECTION("set anew") {
    loop.run([&] { loop.second->run_at(past, [&] { loop.ran.emplace_back("set last"); }); });
    CHECK(loop.ran == std::vector<std::string>{"set last"});
  }
  SECTION("destroyed") {
    loop.run([&] { loop.second.reset(); });
    CHECK(loop.ran.empty());
  }
}

TEST_CASE("an action may set its timer again, and destroy it") {
  boost::asio::io_context loop;
  std::optional<Timer> timer(std::in_place, loop);
  int runs = 0;
  Timer::Action action = [&] {
    if (++runs == 3) return timer.reset();
    timer->run_after(seconds(0), action);
  };
  timer->run_after(seconds(0), action);
  loop.run();
  CHECK(runs == 3);
}

TEST_CASE("a timer frees what its action owns once it has run or is cancelled") {
  boost::asio::io_context loop;
  Timer timer(loop);
  auto owned = std::make_shared<int>();
  const std::weak_ptr<int> watched = owned;
  const bool cancels = GENERATE(true, false);
  timer.run_at(past, [owned = std::move(owned)] {});
  CHECK_FALSE(watched.expired());
  if (cancels)
    timer.cancel();
  else
    loop.run();
  CHECK(watched.expired());
}
