// Who gets what is queued: its keeper, or a caller who comes for it first. A keeper that is not woken up hangs.
#include "ddprun/worker/comm/execution/work_queue.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/catch.h"

using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr auto for_ever = 24h;

void expect_callers(SyncWaitPredictor& callers) {
  for (int i = 0; i < SyncWaitPredictor::trials; ++i) callers.note(1us);
}

// What another thread does brings the keeper an item.
template <class Act>
void expect_item_by(WorkQueue<int>& queue, Act act) {
  std::thread other(act);
  REQUIRE(queue.await_item(for_ever));
  CHECK(queue.try_pop() == 7);
  other.join();
}

}  // namespace

TEST_CASE("callers are expected at once after some who came so, until one does not") {
  SyncWaitPredictor callers;
  for (int i = 0; i + 1 < SyncWaitPredictor::trials; ++i) callers.note(1us);
  CHECK_FALSE(callers.expected());
  callers.note(1us);
  CHECK(callers.expected());
  callers.note(1ms);
  CHECK_FALSE(callers.expected());
}

TEST_CASE("an item wakes up the keeper of a queue whose callers are not expected") {
  SyncWaitPredictor callers;
  WorkQueue<int> queue(callers, for_ever);
  expect_item_by(queue, [&] { queue.push(7); });
}

TEST_CASE("an item that no caller takes falls to the keeper after its naps, and wakes it up from then on") {
  SyncWaitPredictor callers;
  expect_callers(callers);
  WorkQueue<int> queue(callers, 1ms);
  queue.push(7);
  REQUIRE(queue.await_item(for_ever));
  CHECK(queue.try_pop() == 7);
  CHECK_FALSE(callers.expected());
}

TEST_CASE("an item that no caller takes falls to the keeper also while others come") {
  SyncWaitPredictor callers;
  expect_callers(callers);
  WorkQueue<int> queue(callers, 100ms);
  queue.push(7);
  std::atomic<bool> taken = false;
  std::thread caller([&] {
    for (; !taken; std::this_thread::yield()) queue.push(7);
  });
  REQUIRE(queue.await_item(for_ever));
  taken = true;
  CHECK(queue.try_pop() == 7);
  caller.join();
}

TEST_CASE("a keeper to whom no items come stops napping") {
  SyncWaitPredictor callers;
  expect_callers(callers);
  WorkQueue<int> queue(callers, 1ms);
  REQUIRE(queue.await_item(for_ever));
  CHECK_FALSE(callers.expected());
  expect_item_by(queue, [&] { queue.push(7); });
}

TEST_CASE("an item that is handed over ends the keeper's nap") {
  SyncWaitPredictor callers;
  expect_callers(callers);
  WorkQueue<int> queue(callers, for_ever);
  queue.push(7);
  expect_item_by(queue, [&] { queue.hand_over(); });
}

TEST_CASE("a queue that is closed lets its keeper go, also from a nap") {
  SyncWaitPredictor callers;
  const bool expected = GENERATE(false, true);
  if (expected) expect_callers(callers);
  WorkQueue<int> queue(callers, for_ever);
  std::thread owner([&] { queue.close(); });
  while (queue.await_item(for_ever)) continue;
  owner.join();
}
