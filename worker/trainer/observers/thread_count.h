#pragma once

#include <chrono>

namespace ddprun::trainer {

// The number of threads with which a rank computes while other processes may need the processors. Threads that wait for
// each other and for a processor make a step take many times as long as one thread does: two jobs of two threads on two
// cores took 30 times as long as with one thread each. So as soon as more tasks than processors want to run, the rank
// gives up its share of the excess. It takes threads back when processors have been free for a while, which doubles, up
// to a limit, whenever that proves wrong at once.
//
// A value; the caller measures and passes the time.
class ThreadCount {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Tasks of a machine at one moment.
  struct Load {
    int processors;
    int others;  // tasks of other processes that run or wait for a processor
  };

  // REQUIRES: most >= 1
  explicit ThreadCount(int most) : most_(most), count_(most) {}

  int count() const { return count_; }
  // Returns whether count() has changed.
  bool observe(const Load& load, TimePoint now);

 private:
  void give_up(int too_many, int running, TimePoint now);
  void take_back(int free, TimePoint now);

  static constexpr std::chrono::milliseconds shortest_wait{100}, longest_wait{6400}, trial{1000};

  const int most_;
  int count_;
  std::chrono::milliseconds wait_ = shortest_wait;
  TimePoint busy_at_{};  // the time of the last observation without a free processor
  TimePoint raised_at_{};
};

}  // namespace ddprun::trainer
