#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "rendezvous/recovery/recovery_keys.h"
#include "worker/comm/elastic_world.h"
#include "worker/comm/init.h"
#include "worker/recovery/plan_watch.h"
#include "worker/recovery/positions.h"
#include "worker/recovery/recovery_state.h"
#include "worker/recovery/recovery_times.h"
#include "worker/recovery/state_offer.h"

namespace ddprun {

// A rank's membership of a job that loses and regains ranks without ending the others: executes the requests of a
// RecoveryState, with the members that the launcher decides. A replacement is a process that joins such a job.
//
// Ownership: owns the process groups, one after the other, and its connections to the store. What recover() returns is
//   valid until the next recover().
// Threads: one at a time; any thread may call abort().
// Errors: what the store and the group throw. Every wait ends: each has a bound of its own, and a newer plan
//   ends those for the group of an older one.
class Recovery {
 public:
  // REQUIRES: options.env.recovery. bound: the time in which all members of a new generation have to join and to
  // compare their positions. A copy of the state from other ranks may take as long as an operation of the group,
  // options.config.timeout; one from a checkpoint has no bound of its own.
  // layout: none if every rank has the whole state.
  Recovery(const InitOptions& options, std::chrono::milliseconds bound,
           std::optional<RecoveryState::Layout> layout = {});

  ~Recovery() { withdraw(); }
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  int rank() const { return rank_; }
  bool is_replacement() const { return joined_in_ > 0; }
  // The generation of the present group, or of the one that forms.
  std::uint64_t generation() const { return state_.generation(); }
  // The group of all ranks that the launcher started together. REQUIRES: not is_replacement()
  ProcessGroup& form_first();

  // Declares that from now on this rank can recover. A replacement always can.
  void announce();
  // Declares that this rank cannot recover any more: it has failed by itself, or leaves.
  void withdraw() noexcept;
  // Declares that the run is done, and does what withdraw() does: a process that waits to join learns of it.
  void finish() noexcept;
  bool is_able() const { return able_; }
  // These do what RecoveryState's methods do.
  void on_applied(std::int64_t step) { state_.on_applied(step); }
  void set_holdings(Holdings own) { state_.set_holdings(std::move(own)); }
  void set_events_done(bool done) { state_.set_events_done(done); }

  // Gives all ranks the state of the run that the catch-up says, and returns its step. Collective.
  using Copy = std::function<std::int64_t(ProcessGroup& group, const Catchup& catchup, bool receives)>;
  struct Resumed {
    ProcessGroup& group;
    Catchup catchup;
    std::uint64_t generation;
    RecoveryTimes times;  // those that recover() knows
  };
  // To be called after a failure of the group, or to join: forms the next generation, in which all ranks then have the
  // same step. No session uses the current group any more. Returns none if the others go on without this rank, as it
  // was told by change(), or are done before it has joined. Throws Errc::peer_lost if the job has to be restarted
  // instead. This rank cannot recover any more in all of these cases.
  std::optional<Resumed> recover(const std::string& reason, const Copy& copy);
  // To be called instead by all ranks after a step, once change_decided() was true at one of them.
  std::optional<Resumed> change(const Copy& copy);
  // From now until the next recover() or change(), this rank offers the state to the processes of nodes that are to
  // join, so that they have it when they do. take_receivers() returns the group with those of a node that have asked
  // for it, in which this process is rank 0, once after it has formed; otherwise null, at once.
  void offer_state();
  std::unique_ptr<ProcessGroup> take_receivers() { return offer_ ? offer_->take() : nullptr; }
  // To be called by a process that is to join, before announce(): returns the group in which rank 0 sends the state;
  // null if there is none. The group fails if this process joins before it has announced that it can.
  std::unique_ptr<ProcessGroup> ask_for_state();
  // Returns by rank of the group whether the process is a member of the next one, as decided so far. Collective.
  std::vector<bool> staying();
  // From now until the next recover() or change(), rank 0 of the group watches for a change of its members.
  void watch_for_change();
  // Whether that rank has seen one. Any thread.
  bool change_decided() const { return change_decided_; }
  // Fails the operations of the process's present group, and those by which it forms the next one.
  void abort(const std::string& reason) { world_.group().abort(reason); }

 private:
  using State = RecoveryState;
  std::optional<Resumed> go_on(State::Request request, const Copy& copy);
  State::Request execute(const State::Request& request, const Copy& copy);
  void form_group(const MembershipPlan& plan);
  State::Request await_plan(const State::AwaitPlan& request);
  bool await_key(const std::string& key, Deadline deadline);
  bool others_go_on(Deadline deadline);
  void report_lost() noexcept;
  void connect_to_store();
  void publish(const std::string& key, std::string_view value);
  void announce_state() noexcept;
  State::Request compare_positions_of_all(const Holdings& own);
  void watch_for_end();
  Deadline deadline_of(const Catchup& catchup) const;
  void watch_for_newer_plan(std::optional<PlanWatch>& watch, Deadline deadline, std::string late);
  MembershipPlan newest_plan(std::uint64_t expected);
  std::vector<std::string> stay_in(const MembershipPlan& plan) const;
  std::shared_ptr<Store> connect_first();
  PlanWatch::Connect connect_watch();
  StateOffer::Form form_beside();

  const int rank_;
  const std::vector<std::string> node_;  // the processes of this one's node that began with it
  const std::uint64_t joined_in_;        // the first generation of this process
  const int world_size_;
  const RecoveryKeys keys_;
  const std::string self_;  // this process's name among the members
  const std::chrono::milliseconds bound_, copy_bound_;
  ElasticWorld world_;
  std::uint32_t store_moves_;  // when store_ was connected
  std::shared_ptr<Store> store_;
  RecoveryState state_;
  std::vector<std::string> members_;  // of the last group, by rank
  Catchup catchup_;                   // that of the last comparison
  bool able_;
  bool got_state_ = false;           // from others
  bool waited_for_members_ = false;  // for long, before the last group could not form
  bool state_announced_ = false;     // in the present store; otherwise it is announced after the next recovery
  std::atomic<bool> change_decided_{false};
  std::optional<PlanWatch> change_watch_;  // sets it
  std::atomic<bool> over_{false};          // the run is done, in which this process has had no part
  std::optional<PlanWatch> end_watch_;     // sets it
  std::optional<StateOffer> offer_;
  std::stop_source joins_;               // requested if this process is to join before it has the state
  std::optional<PlanWatch> join_watch_;  // requests it
};

}  // namespace ddprun
