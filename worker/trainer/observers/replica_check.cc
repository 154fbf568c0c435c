#include "worker/trainer/observers/observers.h"
#include "worker/trainer/session/replicas.h"

namespace ddprun::trainer {
namespace {

// train.check_replicas: every so many steps, checks that the copies of a range of the parameters are the same at all
// ranks, one range after the other; when the run ends or stops, all of them, before they are saved.
class ReplicaCheck : public Observer {
 public:
  explicit ReplicaCheck(std::int64_t every) : every_(every), ranges_(every == 1 ? 1 : 10) {}

  void step_finished(const StepEvent& event) override {
    const auto step = event.session.state().run.step;
    const auto number = step / every_;
    const bool is_due = number > (step - event.result.steps) / every_;
    if (event.last || event.stops)
      check(event.session, {});
    else if (is_due)
      check(event.session, {.index = number % ranges_, .ranges = ranges_});
  }

 private:
  static void check(Session& session, ReplicaRange range) {
    check_replicas([&](const auto& visitor) { session.visit_replicas(visitor); }, session.group().rank(),
                   session.state().run.step, range);
  }

  const std::int64_t every_;   // steps from one check to the next
  const std::int64_t ranges_;  // ranges of the parameters; a check takes one
};

}  // namespace

std::unique_ptr<Observer> make_replica_check(const ObserverContext& context, Observer&) {
  const auto every = context.config.train.check_replicas;
  return every > 0 ? std::make_unique<ReplicaCheck>(every) : nullptr;
}

}  // namespace ddprun::trainer
