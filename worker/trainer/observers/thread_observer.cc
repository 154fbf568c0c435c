#include "common/log.h"
#include "worker/tensor/onednn/threads.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/observers/processor_load.h"
#include "worker/trainer/observers/thread_count.h"

namespace ddprun::trainer {
namespace {

// Computes with fewer threads while other processes need the processors. No bit of a result depends on their number.
class ThreadObserver : public Observer {
 public:
  explicit ThreadObserver(int most) : most_(most), count_(most) {}

  void session_started(Session&) override { adjust(); }
  void step_finished(const StepEvent&) override { adjust(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds interval{20};
  static constexpr std::chrono::seconds worth_a_line{2};

  void adjust() {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + interval;
    const auto load = read_processor_load();
    if (!load) return;
    if (count_.observe(*load, now)) onednn::set_threads(count_.count());
    if (count_.count() == most_)
      had_all_at_ = now;
    else if (!said_ && now - had_all_at_ > worth_a_line)
      say();
  }

  void say() {
    said_ = true;
    log::info("computes with {} of {} threads while other processes need the processors", count_.count(), most_);
  }

  const int most_;
  ThreadCount count_;
  Clock::time_point next_{}, had_all_at_ = Clock::now();
  bool said_ = false;
};

}  // namespace

std::unique_ptr<Observer> make_thread_observer(const ObserverContext&, Observer&) {
  const int most = onednn::threads();
  return most > 1 && onednn::has_several_threads() ? std::make_unique<ThreadObserver>(most) : nullptr;
}

}  // namespace ddprun::trainer
