#include "rendezvous/recovery/store_notice.h"

#include <future>
#include <string>
#include <thread>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("a worker reads where the store is, and how often it has moved") {
  StoreNotice notice;
  const StoreNoticeReader worker(notice.address());
  CHECK(worker.read().moves == 0);
  CHECK(worker.read().place.host.empty());
  notice.set_place("fd00::7", 4711, 3);
  CHECK(worker.read().moves == 1);
  CHECK(worker.read().place == HostPort{"fd00::7", 4711});
  CHECK(worker.read().generation == 3);
  notice.set_place("", 0, 0);
  CHECK(worker.read().moves == 2);
  CHECK(worker.read().place.host.empty());
  CHECK_THROWS_AS(notice.set_place(std::string(300, 'a'), 1, 1), Error);
}

TEST_CASE("a worker waits until the store has moved, or the deadline has passed") {
  StoreNotice notice;
  const StoreNoticeReader worker(notice.address());
  CHECK_FALSE(worker.await_move(0, Deadline::in(1ms)));
  auto moved = std::async(std::launch::async, [&] { return worker.await_move(0, Deadline::in(60s)); });
  notice.set_place("10.0.0.1", 1, 1);
  CHECK(moved.get());
  CHECK(worker.await_move(0, Deadline::in(0s)));
  CHECK_FALSE(worker.await_move(1, Deadline::in(0s)));
}

TEST_CASE("a wait for a move ends once it is to stop") {
  StoreNotice notice;
  const StoreNoticeReader worker(notice.address());
  std::stop_source stop;
  auto moved =
      std::async(std::launch::async, [&] { return worker.await_move(0, Deadline::never(), stop.get_token()); });
  stop.request_stop();
  worker.wake();
  CHECK_FALSE(moved.get());
}

TEST_CASE("an agent learns that a worker waits") {
  StoreNotice notice;
  const StoreNoticeReader worker(notice.address());
  CHECK_FALSE(notice.is_awaited(std::chrono::hours(1)));
  worker.say_waiting();
  CHECK(notice.is_awaited(std::chrono::hours(1)));
  CHECK_FALSE(notice.is_awaited(std::chrono::milliseconds(-1)));
}

TEST_CASE("a place is read as a whole while it changes") {
  StoreNotice notice;
  const StoreNoticeReader worker(notice.address());
  std::jthread agent([&](const std::stop_token& stop) {
    for (std::uint16_t i = 1; !stop.stop_requested(); i = static_cast<std::uint16_t>(i % 200 + 1))
      notice.set_place(std::string(i, 'a'), i, i);
  });
  for (int i = 0; i < 20000; ++i) {
    const auto place = worker.read().place;
    if (place.host.size() != place.port_or(0)) FAIL("a host of " << place.host.size() << " bytes and another port");
  }
}

TEST_CASE("what is no memory of an agent cannot be opened as a notice") {
  CHECK_THROWS_AS(StoreNoticeReader("/proc/self/fd/987654"), Error);
  CHECK_THROWS_AS(StoreNoticeReader("/proc/self/nothing"), Error);
}
