#include "worker/data/loader.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <numeric>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/processes.h"

using namespace ddprun;
using namespace ddprun::data;

namespace {

// Sample i is two floats i, -i and the label i; one index can fail on request.
class Counting : public Dataset {
 public:
  explicit Counting(std::int64_t size, std::int64_t broken = -1) : size_(size), broken_(broken) {}
  std::int64_t size() const override { return size_; }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    ++reads_;
    if (index == broken_) throw make_error(Errc::io, "sample {} is broken", index);
    const float values[] = {static_cast<float>(index), static_cast<float>(-index)};
    std::memcpy(input.data(), values, sizeof(values));
    std::memcpy(target.data(), &index, sizeof(index));
  }
  int reads() const { return reads_; }

 private:
  std::int64_t size_;
  std::int64_t broken_;
  SampleLayout layout_{.input_shape = {2}, .classes = 1000};
  mutable std::atomic<int> reads_ = 0;
};

std::vector<std::int64_t> some_order(std::int64_t size) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back((i * 37 + 5) % size);
  return order;
}

std::vector<std::vector<std::int64_t>> labels_of(Loader& loader) {
  std::vector<std::vector<std::int64_t>> all;
  while (const auto batch = loader.next()) {
    const auto* labels = batch->target().data<std::int64_t>();
    const auto* inputs = batch->input().data<float>();
    all.emplace_back(labels, labels + batch->size());
    for (std::int64_t i = 0; i < batch->size(); ++i) {
      if (inputs[2 * i] != static_cast<float>(labels[i]) || inputs[2 * i + 1] != -inputs[2 * i]) FAIL("torn sample");
    }
  }
  return all;
}

}  // namespace

TEST_CASE("batches come in order, whatever the number of threads") {
  const Counting set(103);
  const auto order = some_order(103);
  for (const int workers : {0, 1, 2, 5}) {
    for (const int prefetch : {1, 3, 100}) {
      INFO(workers << " workers, prefetch " << prefetch);
      Loader loader(set, order, {.batch_size = 10, .workers = workers, .prefetch = prefetch});
      CHECK(loader.batches() == 11);
      const auto batches = labels_of(loader);
      REQUIRE(batches.size() == 11);
      CHECK(batches.back().size() == 3);
      std::vector<std::int64_t> joined;
      for (const auto& batch : batches) joined.insert(joined.end(), batch.begin(), batch.end());
      CHECK(joined == order);
      CHECK_FALSE(loader.next());
    }
  }
}

TEST_CASE("batches may have sizes of their own") {
  const Counting set(20);
  for (const int workers : {0, 2}) {
    Loader loader(set, BatchList{.indices = {5, 3, 9, 1, 7, 2}, .ends = {1, 4, 6}}, {.workers = workers});
    CHECK(loader.batches() == 3);
    CHECK(labels_of(loader) == std::vector<std::vector<std::int64_t>>{{5}, {3, 9, 1}, {7, 2}});
  }
}

TEST_CASE("going on from any batch gives the rest of the epoch") {
  const Counting set(50);
  const auto order = some_order(50);
  Loader whole(set, order, {.batch_size = 8, .workers = 2});
  const auto expected = labels_of(whole);
  for (std::size_t done = 0; done <= expected.size(); ++done) {
    const auto begin = std::min<std::size_t>(done * 8, order.size());
    Loader rest(set, {order.begin() + static_cast<std::ptrdiff_t>(begin), order.end()},
                {.batch_size = 8, .workers = 2});
    CHECK(labels_of(rest) == std::vector(expected.begin() + static_cast<std::ptrdiff_t>(done), expected.end()));
  }
}

TEST_CASE("a loader stops in the middle of an epoch, before it, and when nobody asked for a batch") {
  const Counting set(1000);
  for (int taken = 0; taken < 4; ++taken) {
    Loader loader(set, some_order(1000), {.batch_size = 4, .workers = 3, .prefetch = 2});
    for (int i = 0; i < taken; ++i) CHECK(loader.next()->size() == 4);
  }
  const Loader empty(set, std::vector<std::int64_t>{}, {.workers = 2});
  CHECK(empty.batches() == 0);
}

TEST_CASE("no more is prepared than the bound allows") {
  const Counting set(1000);
  {
    Loader loader(set, some_order(1000), {.batch_size = 1, .workers = 3, .prefetch = 5});
    for (int i = 0; i < 10; ++i) loader.next();
  }
  CHECK(set.reads() >= 10);
  CHECK(set.reads() <= 15);
}

TEST_CASE("what a dataset throws comes out at its batch, and again") {
  const Counting set(40, 25);
  std::vector<std::int64_t> order(40);
  std::iota(order.begin(), order.end(), 0);
  for (const int workers : {0, 1, 3}) {
    Loader loader(set, order, {.batch_size = 10, .workers = workers});
    CHECK(loader.next());
    CHECK(loader.next());
    CHECK_THROWS_WITH(loader.next(), "sample 25 is broken");
    CHECK_THROWS_WITH(loader.next(), "sample 25 is broken");
  }
}

namespace {

// Notes which threads read, and how they are scheduled.
class Watched : public Counting {
 public:
  using Counting::Counting;
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    Counting::read(index, input, target);
    if (std::this_thread::get_id() == owner_) {
      ++own_reads;
      return;
    }
    worker = ::gettid();
    policy = ::sched_getscheduler(0);
    policy.notify_all();
  }

  mutable std::atomic<int> own_reads = 0;  // by the thread that made this object
  mutable std::atomic<pid_t> worker = 0;
  mutable std::atomic<int> policy = -1;

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
};

// Holds one thread while it waits for something, as a busy machine does that gives it no processor.
class HeldThread {
 public:
  explicit HeldThread(pid_t thread) {
    struct sigaction action {};
    action.sa_handler = [](int) {
      held = true;
      held.notify_all();
      held.wait(true);
    };
    ::sigaction(SIGUSR1, &action, &before_);
    while (state_of(thread) != 'S') std::this_thread::yield();
    ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR1);
    held.wait(false);
  }
  ~HeldThread() {
    held = false;
    held.notify_all();
    ::sigaction(SIGUSR1, &before_, nullptr);
  }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;

 private:
  static char state_of(pid_t thread) {
    const auto text = testing::proc_text(std::to_string(thread), "stat");
    return text.at(text.rfind(')') + 2);
  }

  static inline std::atomic<bool> held = false;
  struct sigaction before_ {};
};

}  // namespace

TEST_CASE("a worker that is woken does not take the processor from the thread that wakes it") {
  const Watched set(10);
  const Loader loader(set, some_order(10), {.batch_size = 1, .workers = 1});
  set.policy.wait(-1);
  CHECK(set.policy == SCHED_BATCH);
}

TEST_CASE("the next batch does not wait for a worker that has no processor") {
  const Watched set(3);
  Loader loader(set, some_order(3), {.batch_size = 1, .workers = 1, .prefetch = 1});
  set.policy.wait(-1);
  std::size_t batches = 0;
  {
    const HeldThread held(set.worker);
    batches = labels_of(loader).size();
  }
  CHECK(batches == 3);
  CHECK(set.own_reads == 2);
}
