#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "worker/recovery/positions.h"

namespace ddprun {

// The members of one generation of a job's process group, by rank, as decided by the launcher; none if no generation
// follows in this store: those that leave do so in order, and the others go on by another store, or are being stopped.
struct MembershipPlan {
  std::uint64_t generation = 0;
  std::vector<std::string> members;
  std::vector<std::string> leaving;  // only without members

  bool has_member(const std::string& name) const { return std::ranges::find(members, name) != members.end(); }
  bool is_left_by(const std::string& name) const { return std::ranges::find(leaving, name) != leaving.end(); }
};

// The behaviour of a rank from a fault of its process group until it trains again: events in, the next request out. No
// I/O; recovery.cc executes the requests.
//
//   training --failed--> awaiting a plan --> forming the group --> comparing positions --> copying the state -->
//   training
//
// A failure in any of these leads back to a newer plan. A rank that fails while it copies a state of which every rank
// has the whole has no state any more. Where ranks have parts of the state it is restored from what they hold, which
// stays until they train on, or from a checkpoint; and a plan with too few members for the layout is passed over. A
// change that all ranks know of after a step begins like a failure; a rank that is no member any more then leaves in
// order.
//
// A value. Threads: not thread-safe. Errors: none thrown.
class RecoveryState {
 public:
  // Requests; the event that answers each is named. Each but Leave and GiveUp may be answered by on_failure().
  struct AwaitPlan {  // the first plan above this generation              -> on_plan(), on_no_plan()
    std::uint64_t newer_than = 0;
    bool lacks_members = false;  // that of this generation had too few
  };
  struct FormGroup {  // and leave the current one                         -> on_formed()
    MembershipPlan plan;
  };
  struct ComparePositions {  // with all members                           -> on_positions()
    Holdings own;
  };
  struct CopyState {  // as catchup says; all members take part            -> on_copied()
    Catchup catchup;
    bool receives = false;  // this rank's state is replaced by another one's
  };
  struct Train {  // the steps after this one, and first what follows it   -> on_applied()
    std::int64_t step = 0;
  };
  struct Leave {};  // the others go on without this rank, as it was told after a step
  struct GiveUp {   // the job has to be restarted
    std::string reason;
  };
  using Request = std::variant<AwaitPlan, FormGroup, ComparePositions, CopyState, Train, Leave, GiveUp>;

  // The layout of a state of which ranks have parts.
  struct Layout {
    std::function<bool(int ranks)> fits;  // whether so many ranks can have it
  };

  // self: the name of this process in plans. own, generation: what it holds, and the last generation that it was in; a
  // replacement holds nothing, and joins a later generation than the one given. layout: none if every rank has the
  // whole state.
  RecoveryState(std::string self, Holdings own, std::uint64_t generation, std::optional<Layout> layout = {})
      : self_(std::move(self)), own_(std::move(own)), generation_(generation), layout_(std::move(layout)) {}

  // To be called when this rank, which has the whole state, has applied a step.
  void on_applied(std::int64_t step) { own_ = whole_state(step); }
  // To be called before on_failure() if ranks have parts of the state.
  void set_holdings(Holdings own) { own_ = std::move(own); }
  // To be called before on_failure() and on_change(): whether all events of the step that this rank has applied last
  // are done here.
  void set_events_done(bool done) { own_.events_done = done ? own_.reached : -1; }
  // Called when the group, or what was requested, has failed; or if this process is to join for the first time. reason:
  // that of GiveUp, should no plan follow; the first one since the rank trained is kept.
  Request on_failure(const std::string& reason);
  // Called after a step instead, when all ranks know that another plan has been decided.
  Request on_change();
  Request on_plan(const MembershipPlan& plan);
  Request on_no_plan() const;
  Request on_formed() const { return ComparePositions{own_}; }
  Request on_positions(std::span<const Holdings> processes);
  // step: that of the state which all members have now.
  Request on_copied(std::int64_t step);

  const Holdings& own() const { return own_; }
  std::uint64_t generation() const { return generation_; }
  // Why this rank does not train: the first failure since it did; empty if it trains.
  const std::string& reason() const { return reason_; }

 private:
  Request restore(std::optional<Catchup> catchup, std::span<const Holdings> processes);
  Request train(std::int64_t step);

  std::string self_;
  Holdings own_;
  std::uint64_t generation_;  // that of the last plan
  int rank_ = 0;              // its number in that plan
  std::string reason_;        // empty while the rank trains
  bool changes_ = false;      // by on_change(), until the rank trains again
  std::optional<Layout> layout_;
  std::optional<int> ranks_that_do_not_fit_;  // as many as the last plan has, if it was passed over
};

}  // namespace ddprun
