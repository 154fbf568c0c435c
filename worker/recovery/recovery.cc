#include "worker/recovery/recovery.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/chrono.h>

#include "common/error.h"
#include "common/log.h"
#include "worker/comm/collectives.h"
#include "worker/comm/error_file.h"

namespace ddprun {
namespace {

// An agent decides within milliseconds of a death, and within some seconds that a node is frozen or cut off; later it
// has seen none of them.
constexpr std::chrono::seconds plan_bound{10};
constexpr std::chrono::seconds store_timeout{10};
// Most decisions come before. One about a death takes some milliseconds.
constexpr std::chrono::seconds silent_wait{2};
constexpr std::chrono::milliseconds prompt_wait{30};
// A query of the store that serves the group may not delay the search for another one.
constexpr std::chrono::milliseconds query_bound{500};

using Clock = std::chrono::system_clock;

Deadline soon() {
  return Deadline::in(store_timeout);
}

std::vector<std::string> members_of_node(const WorkerEnv& env) {
  std::vector<std::string> names;
  for (int i = 0; i < env.local_world_size; ++i)
    names.push_back(member_name(env.rank - env.local_rank + i, static_cast<std::uint64_t>(*env.recovery)));
  return names;
}

}  // namespace

Recovery::Recovery(const InitOptions& options, std::chrono::milliseconds bound,
                   std::optional<RecoveryState::Layout> layout)
    : rank_(options.env.rank),
      node_(members_of_node(options.env)),
      joined_in_(static_cast<std::uint64_t>(*options.env.recovery)),
      world_size_(options.env.world_size),
      keys_{options.env.restart_count},
      self_(member_name(rank_, joined_in_)),
      bound_(bound),
      copy_bound_(options.config.timeout),
      world_(options, keys_.groups(), self_),
      store_moves_(world_.store_moves()),
      store_(connect_first()),
      state_(self_, {}, joined_in_ > 0 ? joined_in_ - 1 : 0, std::move(layout)),
      able_(joined_in_ > 0) {}

ProcessGroup& Recovery::form_first() {
  for (int rank = 0; rank < world_size_; ++rank) members_.push_back(member_name(rank, 0));
  return world_.group().reconfigure(0, members_);
}

void Recovery::announce() {
  join_watch_.reset();
  store_->set(keys_.able(self_), got_state_ ? got_state_value : able_value, soon());
  able_ = true;
  state_announced_ = got_state_;
}

// Writes to the store that the others read: it may have moved since this process used it last.
void Recovery::publish(const std::string& key, std::string_view value) {
  const auto store = world_.store_moves() == store_moves_ ? store_ : world_.connect(soon());
  store->set(key, value, soon());
}

// Nodes may leave in order only while another one has the state.
void Recovery::announce_state() noexcept {
  if (!is_replacement() || state_announced_) return;
  got_state_ = true;
  try {
    publish(keys_.able(self_), got_state_value);
    state_announced_ = true;
  } catch (const Error& error) {
    log::debug("cannot tell that this process has the state: {}", error.what());
  }
}

void Recovery::withdraw() noexcept {
  if (!std::exchange(able_, false)) return;
  try {
    publish(keys_.able(self_), unable_value);
  } catch (const Error& error) {
    log::debug("cannot withdraw from recovery: {}", error.what());
  }
}

void Recovery::finish() noexcept {
  try {
    publish(keys_.over(), "1");
  } catch (const Error& error) {
    log::debug("cannot tell that the run is done: {}", error.what());
  }
  withdraw();
}

// A replacement forms a group soon.
std::shared_ptr<Store> Recovery::connect_first() {
  if (is_replacement()) world_.dial_ahead(3);
  return world_.connect();
}

PlanWatch::Connect Recovery::connect_watch() {
  return [this](Deadline deadline, const std::stop_token& stop) { return world_.connect(deadline, stop); };
}

// Ends all that a process waits for that has not joined.
void Recovery::watch_for_end() {
  end_watch_.emplace(connect_watch(), keys_.over(), Deadline::never(), std::string(),
                     [this](bool set, const std::string& why) {
                       if (!set) return log::debug("this process does not learn when the run is done: {}", why);
                       over_ = true;
                       world_.group().abort_before(std::numeric_limits<std::uint64_t>::max(), "the run is done");
                     });
}

std::optional<Recovery::Resumed> Recovery::recover(const std::string& reason, const Copy& copy) {
  return go_on(state_.on_failure(reason), copy);
}

std::optional<Recovery::Resumed> Recovery::change(const Copy& copy) {
  return go_on(state_.on_change(), copy);
}

std::vector<bool> Recovery::staying() {
  ProcessGroup& group = world_.group().group();
  const auto text =
      broadcast_bytes(group, group.rank() == 0 ? member_list(stay_in(newest_plan(state_.generation() + 1))) : "", 0);
  const auto next = parse_member_list(text);
  std::vector<bool> stays;
  for (const auto& member : members_) stays.push_back(std::ranges::count(next, member) > 0);
  return stays;
}

// Returns the members of this group that stay. Those of another store are not known.
std::vector<std::string> Recovery::stay_in(const MembershipPlan& plan) const {
  auto names = members_;
  std::erase_if(
      names, [&](const auto& name) { return plan.members.empty() ? plan.is_left_by(name) : !plan.has_member(name); });
  return names;
}

// Without a watch no change begins before the next failure.
void Recovery::watch_for_change() try {
  change_watch_.reset();
  change_decided_ = false;
  if (world_.group().group().rank() != 0) return;
  change_watch_.emplace(connect_watch(), keys_.members(state_.generation() + 1), Deadline::never(), std::string(),
                        [this](bool set, const std::string& why) {
                          if (!set) log::debug("this rank sees no change of the members: {}", why);
                          change_decided_ = set;
                        });
} catch (const Error& error) {
  log::debug("this rank sees no change of the members: {}", error.what());
}

StateOffer::Form Recovery::form_beside() {
  return [this](const std::string& prefix, int rank, int size, const std::stop_token& stop) {
    return world_.form_beside(prefix, rank, size, stop);
  };
}

void Recovery::offer_state() {
  offer_.emplace(connect_watch(), form_beside(), keys_, state_.generation());
}

// A process that replaces a lost one joins at once, and so does one whose group has lost others meanwhile.
std::unique_ptr<ProcessGroup> Recovery::ask_for_state() {
  if (!is_replacement()) return nullptr;
  join_watch_.emplace(connect_watch(), keys_.members(joined_in_), Deadline::never(), std::string(),
                      [this](bool, const std::string&) { joins_.request_stop(); });
  return accept_offer(*store_, form_beside(), keys_, joined_in_, node_, self_, joins_.get_token());
}

// Returns none if this rank leaves.
std::optional<Recovery::Resumed> Recovery::go_on(State::Request request, const Copy& copy) {
  change_watch_.reset();
  offer_.reset();
  join_watch_.reset();
  const bool joins = is_replacement() && state_.generation() < joined_in_;
  if (joins) watch_for_end();
  if (!joins) world_.dial_ahead(1);
  RecoveryTimes times{.rank = rank_};
  std::optional<PlanWatch> watch;  // set while there is a group, or one forms; a newer plan ends that
  while (!std::holds_alternative<State::Train>(request)) {
    if (over_ || std::holds_alternative<State::Leave>(request)) {
      withdraw();
      return std::nullopt;
    }
    if (const auto* end = std::get_if<State::GiveUp>(&request)) {
      withdraw();
      throw Error(Errc::peer_lost, end->reason);
    }
    if (const auto* await = std::get_if<State::AwaitPlan>(&request)) {
      watch.reset();
      request = await_plan(*await);
      times.planned = Clock::now();
      continue;
    }
    try {
      if (std::holds_alternative<State::FormGroup>(request))
        watch_for_newer_plan(watch, Deadline::in(bound_), fmt::format("not all ranks have joined within {}", bound_));
      if (const auto* copying = std::get_if<State::CopyState>(&request))
        watch_for_newer_plan(watch, deadline_of(copying->catchup),
                             fmt::format("the copy of the state was not complete within {}", copy_bound_));
      const bool forms = std::holds_alternative<State::FormGroup>(request);
      request = execute(request, copy);
      if (forms) times.formed = Clock::now();
    } catch (const Error& error) {
      if (!is_consequence(error.code())) throw;
      log::debug("recovery: {}", error.what());
      request = state_.on_failure(error.what());
    }
  }
  end_watch_.reset();
  times.healed = Clock::now();
  announce_state();
  times.generation = state_.generation();
  times.step = catchup_.step + 1;
  return Resumed{world_.group().group(), catchup_, state_.generation(), times};
}

RecoveryState::Request Recovery::execute(const State::Request& request, const Copy& copy) {
  if (const auto* form = std::get_if<State::FormGroup>(&request)) {
    form_group(form->plan);
    return state_.on_formed();
  }
  if (const auto* compare = std::get_if<State::ComparePositions>(&request))
    return compare_positions_of_all(compare->own);
  const auto& copying = std::get<State::CopyState>(request);
  catchup_ = copying.catchup;
  catchup_.step = copy(world_.group().group(), copying.catchup, copying.receives);
  return state_.on_copied(catchup_.step);
}

// The first member whose bound has passed ends the wait of all.
void Recovery::form_group(const MembershipPlan& plan) {
  const auto late = std::chrono::steady_clock::now() + bound_ / 2;
  try {
    world_.group().reconfigure(plan.generation, plan.members);
  } catch (const Error&) {
    waited_for_members_ = std::chrono::steady_clock::now() >= late;
    throw;
  }
  members_ = plan.members;
}

// A checkpoint may take any time to read; each operation of the group by which it is distributed has its own bound.
Deadline Recovery::deadline_of(const Catchup& catchup) const {
  return catchup.from == StateSource::checkpoint ? Deadline::never() : Deadline::in(copy_bound_);
}

void Recovery::watch_for_newer_plan(std::optional<PlanWatch>& watch, Deadline deadline, std::string late) {
  const auto next = state_.generation() + 1;
  watch.reset();
  watch.emplace(connect_watch(), keys_.members(next), deadline, std::move(late),
                [this, next](bool, const std::string& why) { world_.group().abort_before(next, why); });
}

RecoveryState::Request Recovery::await_plan(const State::AwaitPlan& request) {
  std::chrono::milliseconds bound = plan_bound;
  const bool joins = request.newer_than < joined_in_;
  if (joins) bound = std::max(bound, copy_bound_);  // it waits for others that join, too
  if (request.lacks_members) bound = std::max(bound, bound_);
  const auto deadline = Deadline::in(bound);
  const auto next = keys_.members(request.newer_than + 1);
  if (!joins && !await_key(next, Deadline::in(prompt_wait))) report_lost();
  waited_for_members_ = false;
  if (!joins && !await_key(next, Deadline::in(silent_wait)))
    log::warn("{}; this rank waits for the members of the next process group", state_.reason());
  while (await_key(next, deadline)) {
    auto plan = newest_plan(request.newer_than + 1);
    const bool decides = !plan.members.empty() || plan.is_left_by(self_);
    if (decides || !others_go_on(deadline)) return state_.on_plan(plan);
  }
  return state_.on_no_plan();
}

// No agent sees the end of a process that froze or was cut off: it may still run. The agent with the store ends it.
void Recovery::report_lost() noexcept {
  const auto deadline = Deadline::in(query_bound);
  try {
    for (const auto& member : world_.group().lost(deadline))
      if (member.may_run) store_->set(keys_.lost(member.name), member.cause, deadline);
    if (!waited_for_members_) return;
    for (const auto& member : world_.group().absent(deadline))
      if (std::ranges::count(members_, member) > 0)  // a replacement may take its time
        store_->set(keys_.lost(member), "it has not joined the next process group in time", deadline);
  } catch (const Error& error) {
    log::debug("cannot report lost ranks: {}", error.what());
  }
}

// The agent with the store leaves the job, or has stopped the workers. Where it has left or lost the others, those go
// on by another store; otherwise this process's agent stops it.
bool Recovery::others_go_on(Deadline deadline) {
  constexpr std::chrono::seconds move_bound{2};
  if (!world_.store_may_move()) return false;
  world_.await_store_move(store_moves_, earlier(deadline, Deadline::in(move_bound)));
  return world_.store_moves() != store_moves_;
}

// Returns whether the key is set by the deadline, in the store as it is then: one that is lost is served by another
// node later. One that answers no more is left once the other is there.
bool Recovery::await_key(const std::string& key, Deadline deadline) {
  constexpr std::chrono::milliseconds interval{200};
  while (!over_) {
    const auto end = earlier(deadline, Deadline::in(interval));
    world_.say_waiting();
    try {
      if (world_.store_moves() != store_moves_) connect_to_store();
      store_->wait({key}, end);
      return true;
    } catch (const Error& error) {
      const bool answers = error.code() == Errc::timeout && end.expired();
      if (!answers && !world_.store_may_move()) throw;
      if (!answers) world_.await_store_move(store_moves_, deadline);
    }
    if (deadline.expired()) return false;
  }
  return false;
}

void Recovery::connect_to_store() {
  const auto moves = world_.store_moves();
  store_ = world_.connect();
  world_.group().store_moved(world_.is_beside_store());
  if (able_) announce();
  if (end_watch_) watch_for_end();
  store_moves_ = moves;  // last: a store that falls silent meanwhile is connected to again
}

// expected: the generation that the newest one probably is.
MembershipPlan Recovery::newest_plan(std::uint64_t expected) {
  const auto found =
      store_->execute({FindCall{keys_.newest()}, FindCall{keys_.members(expected)}, FindCall{keys_.leaving()}}, soon());
  const auto generation = found[0] ? parse_generation(*found[0]) : expected;
  const bool is_found = generation == expected && found[1];
  MembershipPlan plan{
      generation, parse_member_list(is_found ? *found[1] : store_->get(keys_.members(generation), soon())), {}};
  if (plan.members.empty() && found[2]) plan.leaving = parse_member_list(*found[2]);
  return plan;
}

RecoveryState::Request Recovery::compare_positions_of_all(const Holdings& own) {
  std::vector<Holdings> processes;
  for (const auto& text : all_gather_bytes(world_.group().group(), encode(own)))
    processes.push_back(decode_holdings(text));
  catchup_ = compare_positions(processes).value_or(Catchup{});
  return state_.on_positions(processes);
}

}  // namespace ddprun
