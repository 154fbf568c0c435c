#include "worker/trainer/observer.h"

#include <algorithm>

namespace ddprun::trainer {

void ObserverList::state_ends() {
  for (const auto& observer : all_) observer->state_ends();
}

void ObserverList::session_started(Session& session) {
  for (const auto& observer : all_) observer->session_started(session);
}

void ObserverList::training_started(Session& session) {
  for (const auto& observer : all_) observer->training_started(session);
}

bool ObserverList::stop_requested() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& observer) { return observer->stop_requested(); });
}

void ObserverList::step_finished(const StepEvent& event) {
  for (const auto& observer : all_) observer->step_finished(event);
}

void ObserverList::evaluation_finished(const EvaluationEvent& event) {
  for (const auto& observer : all_) observer->evaluation_finished(event);
}

void ObserverList::before_checkpoint() {
  for (const auto& observer : all_) observer->before_checkpoint();
}

void ObserverList::checkpoint_saved(std::int64_t step, std::chrono::system_clock::time_point time) {
  for (const auto& observer : all_) observer->checkpoint_saved(step, time);
}

void ObserverList::first_rank_leaves(Session& session) {
  for (const auto& observer : all_) observer->first_rank_leaves(session);
}

void ObserverList::run_finished(Session& session) {
  for (const auto& observer : all_) observer->run_finished(session);
}

}  // namespace ddprun::trainer
