#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// The order in which an event takes effect. A step that diverged is recorded before it ends the run, and is never
// saved; a checkpoint comes after all else of its step, so it says that all of that is done; and no rank stops before
// the checkpoint is complete.
constexpr ObserverMaker* makers_in_order[] = {
    make_replica_check,           //
    make_ledger_observer,         //
    make_metrics_observer,        //
    make_tensorboard_observer,    //
    make_progress_observer,       //
    make_record_observer,         //
    make_slow_rank_observer,      //
    make_profile_observer,        //
    make_skipped_steps_observer,  //
    make_finite_check,            //
    make_evaluation_observer,     //
    make_memory_observer,         //
    make_checkpoint_observer,     //
    make_peer_observer,           //
    make_preemption_observer,     //
    make_thread_observer,         //
};

}  // namespace

std::unique_ptr<Observer> make_observers(const ObserverContext& context) {
  auto all = std::make_unique<ObserverList>();
  for (auto* make : makers_in_order)
    if (auto observer = make(context, *all)) all->add(std::move(observer));
  return all;
}

}  // namespace ddprun::trainer
