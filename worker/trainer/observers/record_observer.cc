#include <algorithm>
#include <cstdint>
#include <optional>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "common/wall_clock.h"
#include "rendezvous/progress/training_memory.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/report/training_account.h"

namespace ddprun::trainer {
namespace {

TrainingAccount::Now now() {
  return {.steady = std::chrono::steady_clock::now().time_since_epoch(), .wall = wall_clock()};
}

// Publishes the state of the run where the agent reads it, after each step.
class RecordObserver : public Observer {
 public:
  RecordObserver(const std::string& address, std::int64_t epochs, bool wants_standby)
      : publisher_(address), epochs_(epochs), account_(wants_standby) {}

  // A process that joins later does not count the step to which it joins, which the process before has made.
  void session_started(Session& session) override {
    if (!counted_) counted_ = session.state().run.step;
    account_.start(now(), {.pid = ::getpid(), .rank = session.group().rank(), .size = session.group().size()});
    publish();
  }

  void step_finished(const StepEvent& event) override {
    const auto& result = event.result;
    const auto& run = event.session.state().run;
    const TrainingAccount::Steps steps{.step = run.step,
                                       .count = result.steps,
                                       .total = event.total_steps,
                                       .epoch = result.epoch,
                                       .epochs = epochs_,
                                       .samples = result.samples,
                                       .tokens = result.tokens,
                                       .loss = result.has_figures ? std::optional(result.loss) : std::nullopt,
                                       .learning_rate = run.lr,
                                       .gradient_norm = result.has_figures ? result.grad_norm : std::nullopt,
                                       .times = result.times,
                                       .rank_times = result.rank_times,
                                       .rank_steps = RankTimes::window};
    if (run.step > *counted_)
      account_.steps_done(now(), steps);
    else
      account_.steps_repeated(now(), steps);
    counted_ = std::max(*counted_, run.step);
    publish();
  }

  void evaluation_finished(const EvaluationEvent& event) override {
    account_.evaluated(now(), event.evaluation.loss, event.evaluation.accuracy);
    publish();
  }

  void before_checkpoint() override { account_.checkpoint_begins(); }
  void checkpoint_saved(std::int64_t step, std::chrono::system_clock::time_point time) override {
    account_.checkpoint_saved(step, std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()));
    publish();
  }

  void run_finished(Session&) override {
    account_.run_finished(now());
    publish();
  }

 private:
  void publish() { publisher_.publish(account_.record()); }

  TrainingPublisher publisher_;
  const std::int64_t epochs_;
  TrainingAccount account_;
  std::optional<std::int64_t> counted_;  // the last step that the account includes
};

}  // namespace

std::unique_ptr<Observer> make_record_observer(const ObserverContext& context, Observer&) {
  if (context.training_record.empty()) return nullptr;
  try {
    return std::make_unique<RecordObserver>(context.training_record, context.config.train.epochs,
                                            context.wants_standby);
  } catch (const Error& e) {
    log::debug("the agent does not see this rank's training: {}", e.what());
    return nullptr;
  }
}

}  // namespace ddprun::trainer
