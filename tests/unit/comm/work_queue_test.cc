// The thread that takes a queued item: the worker, or a caller before it. A worker that is not woken hangs.
#include "worker/comm/execution/work_queue.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/catch.h"

using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr auto very_long = 24h;

void predict_prompt_callers(SyncWaitPredictor& callers) {
  for (int i = 0; i < SyncWaitPredictor::required; ++i) callers.note(1us);
}

// The worker gets the item when another thread does this.
template <class Act>
void expect_item_by(WorkQueue<int>& queue, Act act) {
  std::thread other(act);
  REQUIRE(queue.await_item(very_long));
  CHECK(queue.try_pop() == 7);
  other.join();
}

}  // namespace

TEST_CASE("callers are expected at once after several did, until one does not") {
  SyncWaitPredictor callers;
  for (int i = 0; i + 1 < SyncWaitPredictor::required; ++i) callers.note(1us);
  CHECK_FALSE(callers.expected());
  callers.note(1us);
  CHECK(callers.expected());
  callers.note(1ms);
  CHECK_FALSE(callers.expected());
}

TEST_CASE("an item wakes the worker when no caller is expected") {
  SyncWaitPredictor callers;
  WorkQueue<int> queue(callers, very_long);
  expect_item_by(queue, [&] { queue.push(7); });
}

TEST_CASE("the worker takes an item that no caller takes within the poll interval, and is woken from then on") {
  SyncWaitPredictor callers;
  predict_prompt_callers(callers);
  WorkQueue<int> queue(callers, 1ms);
  queue.push(7);
  REQUIRE(queue.await_item(very_long));
  CHECK(queue.try_pop() == 7);
  CHECK_FALSE(callers.expected());
}

TEST_CASE("the worker takes an item that no caller takes, also while others are pushed") {
  SyncWaitPredictor callers;
  predict_prompt_callers(callers);
  WorkQueue<int> queue(callers, 100ms);
  queue.push(7);
  std::atomic<bool> taken = false;
  std::thread caller([&] {
    for (; !taken; std::this_thread::yield()) queue.push(7);
  });
  REQUIRE(queue.await_item(very_long));
  taken = true;
  CHECK(queue.try_pop() == 7);
  caller.join();
}

TEST_CASE("a worker without items stops polling") {
  SyncWaitPredictor callers;
  predict_prompt_callers(callers);
  WorkQueue<int> queue(callers, 1ms);
  REQUIRE(queue.await_item(very_long));
  CHECK_FALSE(callers.expected());
  expect_item_by(queue, [&] { queue.push(7); });
}

TEST_CASE("hand_over() wakes a polling worker") {
  SyncWaitPredictor callers;
  predict_prompt_callers(callers);
  WorkQueue<int> queue(callers, very_long);
  queue.push(7);
  expect_item_by(queue, [&] { queue.hand_over(); });
}

TEST_CASE("closing the queue ends the worker's wait, also while it polls") {
  SyncWaitPredictor callers;
  const bool expected = GENERATE(false, true);
  if (expected) predict_prompt_callers(callers);
  WorkQueue<int> queue(callers, very_long);
  std::thread owner([&] { queue.close(); });
  while (queue.await_item(very_long)) continue;
  owner.join();
}
