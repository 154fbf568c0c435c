#include "common/host_port.h"
#include "worker/comm/collectives.h"
#include "worker/profiler/slow_rank.h"
#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// Prints a line that names the rank for which the others wait. All ranks have the same times, so all come to the same
// decision and then exchange their hosts' names.
class SlowRankObserver : public Observer {
 public:
  explicit SlowRankObserver(Progress& progress) : progress_(progress) {}

  void session_started(Session&) override { watch_ = {}; }

  void step_finished(const StepEvent& event) override {
    const auto& ranks = event.result.rank_times;
    // A rank that has joined since does not have the times of an earlier step.
    if (event.repeated || ranks.empty()) return;
    const auto slow = watch_.observe(ranks, RankTimes::window);
    if (!slow) return;
    const auto hosts = all_gather_bytes(event.session.group(), local_host_name());
    progress_.line(profiler::slow_rank_line(*slow, hosts[static_cast<std::size_t>(slow->rank)]));
  }

 private:
  Progress& progress_;
  profiler::SlowRankWatch watch_;
};

}  // namespace

std::unique_ptr<Observer> make_slow_rank_observer(const ObserverContext& context, Observer&) {
  return std::make_unique<SlowRankObserver>(context.progress);
}

}  // namespace ddprun::trainer
