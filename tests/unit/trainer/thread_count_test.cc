#include "worker/trainer/observers/thread_count.h"

#include <filesystem>
#include <fstream>

#include "worker/trainer/observers/processor_load.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::trainer;
using namespace std::chrono_literals;

namespace {

// A clock for observations every 20 ms from an arbitrary moment on.
class Clock {
 public:
  ThreadCount::TimePoint next() { return now_ += 20ms; }
  ThreadCount::TimePoint now() const { return now_; }

 private:
  ThreadCount::TimePoint now_{std::chrono::hours(1)};
};

// Returns how long others have to be away until the count rises.
std::chrono::milliseconds time_to_rise(ThreadCount& count, int processors, Clock& clock) {
  const auto from = clock.now();
  while (!count.observe({processors, 0}, clock.next())) {
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - from);
}

}  // namespace

TEST_CASE("a rank alone computes with all its threads") {
  ThreadCount count(2);
  Clock clock;
  for (int i = 0; i < 100; ++i) CHECK_FALSE(count.observe({2, 0}, clock.next()));
  CHECK(count.count() == 2);
}

TEST_CASE("a rank gives up threads as soon as others need the processors") {
  Clock clock;
  for (const int others : {1, 6, 20}) {
    ThreadCount count(2);
    INFO(others);
    CHECK(count.observe({2, others}, clock.next()));
    CHECK(count.count() == 1);
    for (int i = 0; i < 100; ++i) CHECK_FALSE(count.observe({2, others}, clock.next()));
  }
}

TEST_CASE("two ranks that do not know each other end with the processors between them") {
  for (const int processors : {2, 4, 16, 64}) {
    INFO(processors);
    ThreadCount a(processors), b(processors);
    Clock clock;
    for (int i = 0; i < 1000; ++i) {
      const int seen_by_a = b.count(), seen_by_b = a.count();
      const auto now = clock.next();
      a.observe({processors, seen_by_a}, now);
      b.observe({processors, seen_by_b}, now);
    }
    CHECK(a.count() + b.count() == processors);
    CHECK(a.count() == b.count());
  }
}

TEST_CASE("ranks of one job that fill the processors keep their threads until another task comes") {
  ThreadCount count(4);
  Clock clock;
  for (int i = 0; i < 100; ++i) count.observe({16, 12}, clock.next());
  CHECK(count.count() == 4);
  // A thread that waits for a processor costs all ranks more than one thread less does.
  CHECK(count.observe({16, 13}, clock.next()));
  CHECK(count.count() == 3);
}

TEST_CASE("a rank takes threads back once processors are free, later each time that proves wrong") {
  ThreadCount count(2);
  Clock clock;
  count.observe({2, 2}, clock.next());
  std::chrono::milliseconds before{0};
  for (int i = 0; i < 5; ++i) {
    const auto waited = time_to_rise(count, 2, clock);
    CHECK(count.count() == 2);
    CHECK(waited > before);
    before = waited;
    count.observe({2, 2}, clock.next());
    CHECK(count.count() == 1);
  }
  // If the rise proved right, the wait is short again.
  time_to_rise(count, 2, clock);
  for (int i = 0; i < 100; ++i) count.observe({2, 0}, clock.next());
  count.observe({2, 2}, clock.next());
  CHECK(time_to_rise(count, 2, clock) < 200ms);
}

TEST_CASE("the load is that of the machine less this process's own tasks") {
  const testing::TempDir proc;
  const auto write = [&](const std::string& path, const std::string& text) {
    const auto file = proc.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  };
  CHECK_FALSE(read_processor_load(proc.path().string()));
  write("loadavg", "1.20 0.80 0.30 5/321 4711\n");
  write("self/task/10/stat", "10 (ddprun-worker) R 1 10 10 0\n");
  write("self/task/11/stat", "11 (a) R b) S 1 10 10 0\n");
  write("self/task/12/stat", "12 (loader) R 1 10 10 0\n");
  const auto load = read_processor_load(proc.path().string());
  REQUIRE(load);
  CHECK(load->others == 3);
  CHECK(load->processors >= 1);
}
