#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/trainer/session/session.h"

namespace ddprun::trainer {

// An optimizer step is done, at all ranks; the state is the one after it.
struct StepEvent {
  Session& session;
  const StepResult& result;  // ends_epoch: the epoch is finished too
  std::int64_t total_steps;  // those of the run
  bool last;                 // the run is finished with this step
  bool stops;                // the run stops here before its end, as a rank requested
  bool changes = false;      // the run goes on in another group, as a rank requested
  bool repeated = false;     // ranks may have had the event in an earlier group, and some of its effects
};

struct EvaluationEvent {
  Session& session;
  const Evaluation& evaluation;
  std::int64_t epoch;         // epochs that have begun; 1 is the first
  bool best;                  // its loss is the run's lowest so far
  bool repeated;              // true for a run that was complete when it resumed: its records exist
  bool within_epoch = false;  // true if the epoch goes on after it
};

// Work that follows the steps of a run without being part of them: records, checks, evaluations, checkpoints. An
// observer takes the events that concern it. Observers outlive sessions: they get the session with the event.
//
// Threads: the training loop's. All ranks get the same events in the same order, so an observer that every rank has may
//   use the session's group.
// Errors: what an event throws ends the run, before the observers that follow get the event.
class Observer {
 public:
  virtual ~Observer() = default;

  // Called before the state of the last session is replaced by another one, of other memory: what is written of it is
  // complete on return, and nothing refers to it.
  virtual void state_ends() {}
  // Called before the first step in a process group.
  virtual void session_started(Session&) {}
  // Called after that, once the event of a last step in an earlier group has been repeated, if there is one.
  virtual void training_started(Session&) {}
  // Asked before each step: returns whether this rank wants the run to stop after it.
  virtual bool stop_requested() const { return false; }
  virtual void step_finished(const StepEvent&) {}
  virtual void evaluation_finished(const EvaluationEvent&) {}
  // Called at the rank that writes it: what it has recorded of the steps so far has to be on the disk on return.
  virtual void before_checkpoint() {}
  // Called at that rank once the checkpoint of a step is on the disk, maybe some steps later. time: when it was.
  virtual void checkpoint_saved(std::int64_t /*step*/, std::chrono::system_clock::time_point /*time*/) {}
  // Called at all ranks before they go over to a group to which this one's rank 0 does not belong.
  virtual void first_rank_leaves(Session&) {}
  // Called after the last step; not if the run stops before its end.
  virtual void run_finished(Session&) {}
};

// Passes each event to several observers, in their order.
class ObserverList final : public Observer {
 public:
  void add(std::unique_ptr<Observer> observer) { all_.push_back(std::move(observer)); }

  void state_ends() override;
  void session_started(Session& session) override;
  void training_started(Session& session) override;
  bool stop_requested() const override;  // true if any of them requests it
  void step_finished(const StepEvent& event) override;
  void evaluation_finished(const EvaluationEvent& event) override;
  void before_checkpoint() override;
  void checkpoint_saved(std::int64_t step, std::chrono::system_clock::time_point time) override;
  void first_rank_leaves(Session& session) override;
  void run_finished(Session& session) override;

 private:
  std::vector<std::unique_ptr<Observer>> all_;
};

}  // namespace ddprun::trainer
