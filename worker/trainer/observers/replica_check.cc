#include "ddprun/worker/trainer/observers/observers.h"
#include "ddprun/worker/trainer/replicas.h"

namespace ddprun::trainer {
namespace {

// train.check_replicas: the parameters of all ranks are the same after every step.
class ReplicaCheck : public Observer {
 public:
  void step_finished(const StepEvent& event) override {
    auto& session = event.session;
    check_replicas([&](const auto& visitor) { session.visit_parameters(visitor); }, session.group(),
                   session.state().run.step);
  }
};

}  // namespace

std::unique_ptr<Observer> make_replica_check(const ObserverContext& context, Observer&) {
  return context.config.train.check_replicas ? std::make_unique<ReplicaCheck>() : nullptr;
}

}  // namespace ddprun::trainer
