#include "tests/simulation/recovery_schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <variant>

#include <fmt/format.h>

#include "launcher/agent/agent_state.h"
#include "tests/simulation/recovery_rank.h"

namespace ddprun::testing {
namespace {

class Schedule {
 public:
  explicit Schedule(const RecoveryOptions& options)
      : options_(options),
        random_(options.seed),
        agent_({}, {.single_workers = true, .max_restarts = options.restarts}),
        able_(static_cast<std::size_t>(options.ranks), true) {
    const Round round{.members = {{.node_id = "a", .host = "a", .nproc = options.ranks}}, .world_size = options.ranks};
    agent_.on(RoundProposed{.round = round, .reason = "first round"});
    agent_.on(RoundStarted{round});
    MembershipPlan first{0, {}};
    for (int i = 0; i < options.ranks; ++i) {
      Rank rank(i, 0, 0, !is_sharded());
      rank.digest = initial(i);
      rank.knows_others = true;
      rank.parts = parts();
      first.members.push_back(rank.name);
      ranks_.push_back(std::move(rank));
    }
    plans_.push_back(first);
    groups_.emplace_back();
  }

  RecoveryOutcome run() {
    for (int event = 0; event < 200'000; ++event) {
      if (outcome_.gave_up || outcome_.restarted || all_finished()) return end();
      std::vector<std::function<void()>> possible = events();
      if (possible.empty()) break;
      possible[random_() % possible.size()]();
      if (!outcome_.broken.empty()) return outcome_;
    }
    outcome_.broken.push_back("the job does not end");
    return outcome_;
  }

 private:
  bool is_sharded() const { return options_.parts > 1; }
  std::vector<int> parts() const {
    std::vector<int> all;
    for (int i = 0; i < options_.ranks; ++i) all.push_back(part_of(i));
    return all;
  }
  int part_of(int number) const { return number % options_.parts; }
  Digest initial(int number) const { return static_cast<Digest>(1 + part_of(number)); }
  bool all_finished() const {
    return unplanned_.empty() && std::ranges::all_of(ranks_, [](const Rank& r) { return r.finished || !r.alive; });
  }
  bool any_finished() const {
    return std::ranges::any_of(ranks_, [](const Rank& r) { return r.finished; });
  }
  Rank* living(const std::string& name) {
    const auto found = std::ranges::find_if(ranks_, [&](const Rank& r) { return r.name == name && r.alive; });
    return found == ranks_.end() ? nullptr : &*found;
  }
  const MembershipPlan& plan_of(const Rank& rank) const {
    return plans_[static_cast<std::size_t>(rank.state.generation())];
  }
  Group& group_of(const Rank& rank) { return groups_[static_cast<std::size_t>(rank.state.generation())]; }
  bool is_first(const Rank& rank) const { return plan_of(rank).members.front() == rank.name; }

  std::vector<std::function<void()>> events() {
    std::vector<std::function<void()>> all;
    for (Rank& rank : ranks_) {
      if (!rank.alive || rank.finished) continue;
      if (!rank.frozen) all.emplace_back([this, &rank] { progress(rank); });
      if (rank.frozen) all.emplace_back([this, &rank] { run_again(rank); });
      if (rank.frozen && newest_group_of(rank).lost.empty()) all.emplace_back([this, &rank] { lose(rank); });
    }
    if (!reported_.empty()) all.emplace_back([this] { end_reported(); });
    if (outcome_.freezes < options_.freezes && random_() % 40 == 0) all.assign(1, [this] { freeze(); });
    if (cuts_ < options_.cuts && random_() % 40 == 0) all.assign(1, [this] { cut(); });
    if (!unplanned_.empty()) all.emplace_back([this] { publish(); });
    if (changes_ < options_.changes && !any_finished() && random_() % 40 == 0) all.assign(1, [this] { change(); });
    // Deaths are sometimes close together, but mostly rare.
    const bool soon = random_() % 4 == 0;
    if (outcome_.deaths < options_.deaths && (random_() % 40 == 0 || (soon && !unplanned_.empty())))
      all.assign(1, [this] { kill(); });
    return all;
  }

  // Returns null if no rank trains, or recovers, and is not frozen.
  Rank* any_rank() {
    std::vector<Rank*> all;
    for (Rank& rank : ranks_)
      if (rank.alive && !rank.finished && !rank.frozen) all.push_back(&rank);
    return all.empty() ? nullptr : all[random_() % all.size()];
  }

  void kill() {
    Rank* const target = any_rank();
    if (!target) return;
    Rank& rank = *target;
    if (std::holds_alternative<RecoveryState::CopyState>(rank.request)) ++outcome_.deaths_while_copying;
    if (std::holds_alternative<RecoveryState::FormGroup>(rank.request) ||
        std::holds_alternative<RecoveryState::AwaitPlan>(rank.request))
      ++outcome_.deaths_while_forming;
    if (!unplanned_.empty()) ++outcome_.double_deaths;
    end(rank);
  }

  void end(Rank& rank) {
    ++outcome_.deaths;
    ++deaths_since_copies_;
    ++deaths_since_training_;
    rank.alive = false;
    unplanned_.push_back(rank.number);
  }

  void freeze() {
    Rank* const target = any_rank();
    if (!target) return;
    ++outcome_.freezes;
    target->frozen = true;
  }

  void run_again(Rank& rank) {
    rank.frozen = false;
    if (!newest_group_of(rank).lost.empty()) ++outcome_.returned;
  }

  void cut() {
    Rank* const target = any_rank();
    if (!target || !newest_group_of(*target).lost.empty()) return;
    ++cuts_;
    lose(*target);
  }

  // The first loss that a group knows of ends it.
  void lose(Rank& rank) {
    ++outcome_.lost;
    newest_group_of(rank).lost.insert(rank.name);
  }

  Group& newest_group_of(const Rank& rank) {
    const bool is_member = std::ranges::count(plans_.back().members, rank.name) > 0;
    return is_member ? groups_.back() : group_of(rank);
  }

  // A rank that waits for a plan reports whom its group has lost. One that has been in no group knows nobody.
  void report_lost(Rank& rank) {
    const auto& lost = group_of(rank).lost;
    if (lost.empty()) return;
    const bool somebody_knows = std::ranges::any_of(ranks_, [&](const Rank& other) {
      return other.alive && !other.frozen && other.knows_others && group_of(other).lost == lost;
    });
    if (!somebody_knows) return nobody_reports(rank);
    if (!rank.knows_others) return;
    for (const auto& name : lost)
      if (living(name)) reported_.insert(name);
  }

  void nobody_reports(Rank& rank) {
    if (!unplanned_.empty() || !reported_.empty()) return;
    outcome_.unknown = true;
    rank.request = rank.state.on_no_plan();
  }

  void end_reported() {
    for (const auto& name : std::exchange(reported_, {}))
      if (Rank* const rank = living(name); rank && !rank->finished) {
        ++outcome_.ended;
        end(*rank);
      }
  }

  // A rank beyond the others joins, or leaves in order.
  void change() {
    ++changes_;
    const bool joins = !additional_;
    auto members = plans_.back().members;
    if (joins) {
      Rank rank(options_.ranks, plans_.size(), std::nullopt, true);
      rank.request = rank.state.on_failure("it joins");
      additional_ = rank.name;
      members.push_back(rank.name);
      ranks_.push_back(std::move(rank));
    } else {
      std::erase(members, *std::exchange(additional_, std::nullopt));
    }
    decide(std::move(members));
  }

  void decide(std::vector<std::string> members) {
    plans_.push_back({plans_.size(), std::move(members)});
    groups_.emplace_back();
  }

  // Replaces the ranks that have died; not the additional one.
  void replace() {
    auto members = plans_.back().members;
    for (const int number : std::exchange(unplanned_, {})) {
      if (number == options_.ranks) {
        std::erase(members, additional_.value_or(""));
        additional_.reset();
        continue;
      }
      Rank rank(number, plans_.size(), std::nullopt, true);
      rank.request = rank.state.on_failure("it joins");
      members.at(static_cast<std::size_t>(number)) = rank.name;
      ranks_.push_back(std::move(rank));
    }
    decide(std::move(members));
  }

  // The launcher's agent learns of all deaths since the last report.
  void publish() {
    if (options_.changes > 0) return replace();
    std::vector<WorkerFailure> failures;
    for (const int number : std::exchange(unplanned_, {}))
      failures.push_back({.rank = number, .local_rank = number, .signal_number = 9});
    const auto actions = agent_.on_workers_failed(failures, conditions());
    for (const auto& action : actions)
      if (const auto* replace = std::get_if<ReplaceWorkers>(&action)) return start(*replace, failures);
    outcome_.restarted = true;
    const bool budget = outcome_.replaced + static_cast<int>(failures.size()) > options_.restarts;
    const bool none_left = static_cast<int>(failures.size()) == options_.ranks;
    if (!budget && !none_left && !any_finished()) broken("the launcher refuses to replace a rank");
    // The job ends with the first failure's exit code, or the rendezvous decides on a restart.
    if (std::ranges::none_of(actions, [](const auto& each) { return std::holds_alternative<StopWorkers>(each); }))
      broken("the launcher leaves the other ranks alone");
  }

  // Returns those of the newest process of each rank.
  std::vector<WorkerCondition> conditions() const {
    std::vector<WorkerCondition> all(able_.size());
    for (const Rank& rank : ranks_) all[static_cast<std::size_t>(rank.number)].running = rank.alive && !rank.finished;
    for (std::size_t i = 0; i < all.size(); ++i) all[i].able = able_[i];
    return all;
  }

  void start(const ReplaceWorkers& replace, const std::vector<WorkerFailure>& failures) {
    outcome_.replaced += static_cast<int>(failures.size());
    if (replace.generation != plans_.size()) broken("generation {} follows {}", replace.generation, plans_.size() - 1);
    if (replace.restarts_used != outcome_.replaced || outcome_.replaced > options_.restarts)
      broken("{} restarts are counted for {} replacements", replace.restarts_used, outcome_.replaced);
    for (const int number : replace.local_ranks) {
      Rank rank(number, replace.generation, std::nullopt, !is_sharded());
      rank.request = rank.state.on_failure("it joins");
      ranks_.push_back(std::move(rank));
    }
    plans_.push_back({replace.generation, replace.members});
    groups_.emplace_back();
  }

  void progress(Rank& rank) {
    std::visit([&](const auto& request) { this->execute(rank, request); }, RecoveryState::Request(rank.request));
  }

  void execute(Rank& rank, const RecoveryState::AwaitPlan& request) {
    if (plans_.back().generation <= request.newer_than) {
      report_lost(rank);
      if (any_finished() && unplanned_.empty()) rank.request = rank.state.on_no_plan();
      return;
    }
    rank.waits = false;
    rank.exchanged = false;
    rank.operation = 0;
    rank.request = rank.state.on_plan(plans_.back());
    const auto& members = plans_.back().members;
    if (options_.changes > 0 && std::ranges::count(members, rank.name) == 0 &&
        std::holds_alternative<RecoveryState::GiveUp>(rank.request))
      leave(rank);  // it was not told in time: its agent stops it
  }

  void execute(Rank& rank, const RecoveryState::FormGroup&) {
    if (any_finished()) return fail(rank);  // that member has left
    const bool superseded = plans_.back().generation > rank.state.generation();
    if (superseded && random_() % 2 == 0) return fail(rank);
    if (!collective(rank)) return;
    group_of(rank).formed.insert(rank.name);
    rank.knows_others = true;
    if (std::ranges::count(plan_of(rank).members, rank.name) != 1) broken("{} is not a member once", rank.name);
    rank.request = rank.state.on_formed();
  }

  void execute(Rank& rank, const RecoveryState::ComparePositions& request) {
    if (!rank.waits) group_of(rank).positions[{rank.name, rank.operation + 1}] = request.own;
    if (!collective(rank)) return;
    std::vector<Holdings> positions;
    for (const auto& member : plan_of(rank).members)
      positions.push_back(group_of(rank).positions.at({member, rank.operation}));
    rank.request = rank.state.on_positions(positions);
    if (std::holds_alternative<RecoveryState::CopyState>(rank.request)) {
      if (!is_sharded() && std::get<RecoveryState::CopyState>(rank.request).receives) rank.digest.reset();
    } else if (std::holds_alternative<RecoveryState::Train>(rank.request)) {
      resume(rank);
    }
  }

  // In a broadcast, the source needs no other member to complete it.
  void execute(Rank& rank, const RecoveryState::CopyState& request) {
    if (is_sharded()) return restore(rank, request.catchup);
    const auto& source = plan_of(rank).members[static_cast<std::size_t>(request.catchup.source)];
    if (!broadcast(rank, source)) return;
    if (request.receives) {
      const auto sent = copies_.at({rank.state.generation(), source});
      rank.digest = sent.first;
      rank.step = sent.second;
      ++outcome_.copies;
    }
    rank.request = rank.state.on_copied(rank.step);
    resume(rank);
  }

  // All ranks make a new state, of which each gets its part from one that holds it, and then wait for each other.
  void restore(Rank& rank, const Catchup& catchup) {
    if (!rank.exchanged) {
      if (!rank.waits) {
        rank.digest.reset();
        group_of(rank).all[{rank.name, rank.operation + 1}] = rank.kept;
      }
      const auto& members = plan_of(rank).members;
      const bool from_start = catchup.from == StateSource::checkpoint;
      const auto& source =
          from_start ? rank.name : members[static_cast<std::size_t>(catchup.sources[number_in_plan(rank)])];
      if (!broadcast(rank, source)) return;
      rank.exchanged = true;
      rank.step = catchup.step;
      rank.digest = from_start ? initial(rank.number) : digest_at(rank, source, catchup);
      rank.parts = parts();
    }
    if (!collective(rank)) return;
    rank.exchanged = false;
    std::erase_if(rank.kept, [](const Kept& each) { return each.held.applied; });
    if (catchup.from == StateSource::checkpoint) {
      rank.kept.clear();
      rank.confirmed = -1;
    }
    count(rank, catchup);
    rank.request = rank.state.on_copied(catchup.step);
    resume(rank);
    rank.owes_effects = catchup.from == StateSource::applied && rank.step > 0;
    rank.owes_copies = true;
  }

  std::size_t number_in_plan(const Rank& rank) const {
    const auto& members = plan_of(rank).members;
    return static_cast<std::size_t>(std::ranges::find(members, rank.name) - members.begin());
  }

  std::optional<Digest> digest_at(Rank& rank, const std::string& source, const Catchup& catchup) {
    for (const auto& [held, digest] : group_of(rank).all.at({source, rank.operation}))
      if (held.step == catchup.step && held.part == part_of(rank.number) &&
          held.applied == (catchup.from == StateSource::applied))
        return digest;
    broken("{} does not hold what {} wants", source, rank.name);
    return std::nullopt;
  }

  void count(const Rank& rank, const Catchup& catchup) {
    const bool lags = std::ranges::count(catchup.lagging, static_cast<int>(number_in_plan(rank))) > 0;
    if (catchup.from == StateSource::copies) ++outcome_.from_copies;
    if (catchup.from == StateSource::applied && lags) ++outcome_.from_replicas;
    const bool has_replicas = options_.ranks >= 2 * options_.parts;
    if (catchup.from != StateSource::applied && has_replicas && deaths_since_training_ < 2)
      broken("{} repeats steps although replicas of all parts live", rank.name);
    if (catchup.from != StateSource::checkpoint) return;
    ++outcome_.from_start;
    if (deaths_since_copies_ < 2) broken("{} begins again although no two ranks have died", rank.name);
  }

  // Sends its part to the next rank, and keeps that of the one before; once all have both, earlier ones are dropped.
  void keep_copies(Rank& rank) {
    auto& group = group_of(rank);
    const auto& members = plan_of(rank).members;
    const auto before = (number_in_plan(rank) + members.size() - 1) % members.size();
    if (!rank.exchanged) {
      if (!rank.waits) group.sent[{rank.name, rank.operation + 1}] = *rank.digest;
      if (!broadcast(rank, members[before])) return;
      rank.exchanged = true;
      const auto part = part_of(static_cast<int>(before));
      rank.kept.insert(rank.kept.begin(),
                       {{{rank.step, part_of(rank.number), false}, *rank.digest},
                        {{rank.step, part, false}, group.sent.at({members[before], rank.operation})}});
    }
    if (!collective(rank)) return;
    rank.exchanged = false;
    rank.owes_copies = false;
    rank.kept.resize(2);
    rank.confirmed = rank.step;
    group.have_copies.insert(rank.name);
    if (group.have_copies.size() < members.size()) return;
    deaths_since_copies_ = dead_among(members);
  }

  int dead_among(const std::vector<std::string>& members) {
    return static_cast<int>(std::ranges::count_if(members, [&](const auto& each) { return !living(each); }));
  }

  void set_aside(Rank& rank) {
    const auto keep = [&](std::int64_t step, bool ready, Digest digest) {
      rank.kept.push_back({{.step = step, .part = part_of(rank.number), .ready = ready}, digest});
    };
    if (rank.digest) keep(rank.step, false, *rank.digest);
    if (rank.ready) keep(rank.step + 1, true, after_step(*rank.digest, rank.step + 1));
    rank.ready = false;
    Holdings holdings{.parts = rank.parts, .held = {}, .reached = rank.step, .confirmed = rank.confirmed};
    for (const Kept& each : rank.kept) holdings.held.push_back(each.held);
    rank.state.set_holdings(std::move(holdings));
  }

  void execute(Rank& rank, const RecoveryState::Train&) {
    if (rank.owes_effects) return have_effects(rank);
    if (is_sharded() && rank.owes_copies) return keep_copies(rank);
    if (rank.step == options_.steps) {
      if (collective(rank)) finish(rank);  // the comparison of digests
      return;
    }
    const bool is_decided = options_.changes > 0 && plans_.back().generation > rank.state.generation();
    if (!rank.waits && is_first(rank) && is_decided) group_of(rank).change_requests.insert(rank.operation + 1);
    rank.ready = true;
    if (!collective(rank)) return;
    rank.ready = false;
    ++rank.step;
    rank.digest = after_step(*rank.digest, rank.step);
    if (!is_sharded()) rank.state.on_applied(rank.step);
    rank.owes_effects = true;
    rank.owes_copies = rank.step % 3 == 0;
    if (!group_of(rank).change_requests.contains(rank.operation)) return;
    have_effects(rank);
    rank.changes = {rank.step, outcome_.deaths};
    rank.request = rank.state.on_change();
  }

  void execute(Rank& rank, const RecoveryState::Leave&) {
    if (rank.name == additional_ || rank.number < options_.ranks)
      broken("{} leaves, which nobody has asked for", rank.name);
    ++outcome_.left;
    leave(rank);
  }
  void leave(Rank& rank) {
    rank.left = true;
    rank.alive = false;
  }
  void execute(Rank& rank, const RecoveryState::GiveUp& request) {
    for (const auto& other : ranks_)
      if (other.alive && other.digest && !any_finished() && !outcome_.unknown &&
          std::ranges::count(plans_.back().members, other.name) > 0)
        broken("{} gives up although {} has the state: {}", rank.name, other.name, request.reason);
    outcome_.gave_up = true;
  }

  // The rank first withdraws its announcement.
  void finish(Rank& rank) {
    if (rank.number < options_.ranks) able_.at(static_cast<std::size_t>(rank.number)) = false;
    rank.finished = true;
  }

  void resume(Rank& rank) {
    ++outcome_.recoveries;
    const auto& train = std::get<RecoveryState::Train>(rank.request);
    if (!rank.digest || rank.step != train.step)
      broken("{} is to train after step {}, and stands at {}", rank.name, train.step, rank.step);
    rank.owes_effects = rank.step > 0;
    auto& resumed = group_of(rank).resumed;
    resumed.insert(rank.name);
    const auto& members = plan_of(rank).members;
    if (resumed.size() == members.size()) deaths_since_training_ = dead_among(members);
    const auto changed = std::exchange(rank.changes, std::nullopt);
    if (!changed) return;
    ++outcome_.changes;
    const auto [step, deaths] = *changed;
    if (rank.step != step && deaths == outcome_.deaths)
      broken("{} changes groups after step {}, and goes on after {}", rank.name, step, train.step);
  }

  // Records of the step and later ones are replaced, as a file is cut when it is opened at a step.
  void have_effects(Rank& rank) {
    rank.owes_effects = false;
    if (!is_first(rank)) return;
    while (!records_.empty() && records_.back() >= rank.step) records_.pop_back();
    records_.push_back(rank.step);
  }

  // Contributes once, then returns whether the operation has completed here. Where a member is dead it may fail
  // instead, and does if a contribution is missing.
  bool collective(Rank& rank) {
    contribute(rank);
    const auto& members = plan_of(rank).members;
    bool complete = true, dead = !group_of(rank).lost.empty();
    for (const auto& member : members) {
      complete &= group_of(rank).contributed[member] >= rank.operation;
      dead |= living(member) == nullptr;
    }
    return settle(rank, complete, dead);
  }

  bool broadcast(Rank& rank, const std::string& source) {
    if (!rank.waits && rank.name == source) copies_[{rank.state.generation(), source}] = {*rank.digest, rank.step};
    contribute(rank);
    const bool complete = group_of(rank).contributed[source] >= rank.operation;
    const bool dead = !group_of(rank).lost.empty() ||
                      std::ranges::any_of(plan_of(rank).members, [&](const auto& each) { return !living(each); });
    return settle(rank, complete, dead);
  }

  void contribute(Rank& rank) {
    if (rank.waits) return;
    group_of(rank).contributed[rank.name] = ++rank.operation;
    rank.waits = true;
  }

  // A newer plan ends what members wait for in the group of an older one.
  bool others_have_left(const Rank& rank) {
    return std::ranges::any_of(plan_of(rank).members, [&](const auto& member) {
      const Rank* const other = living(member);
      return other && other->state.generation() > rank.state.generation();
    });
  }

  bool settle(Rank& rank, bool complete, bool dead) {
    if ((dead && random_() % 2 == 0) || (!complete && (dead || others_have_left(rank)))) {
      fail(rank);
      return false;
    }
    if (complete) rank.waits = false;
    return complete;
  }

  void fail(Rank& rank) {
    if (is_sharded() && std::holds_alternative<RecoveryState::Train>(rank.request)) set_aside(rank);
    rank.request = rank.state.on_failure("a peer was lost");
  }

  template <class... Values>
  void broken(fmt::format_string<Values...> text, Values&&... values) {
    outcome_.broken.push_back(
        fmt::format("seed {}: {}", options_.seed, fmt::format(text, std::forward<Values>(values)...)));
  }

  RecoveryOutcome end() {
    if (outcome_.gave_up || outcome_.restarted) return outcome_;
    for (const Rank& rank : ranks_) {
      Digest expected = initial(rank.number);
      for (int step = 1; step <= options_.steps; ++step) expected = after_step(expected, step);
      if (rank.alive && rank.digest != expected) broken("{} ends with another digest", rank.name);
    }
    std::vector<std::int64_t> steps;
    for (int step = 1; step <= options_.steps; ++step) steps.push_back(step);
    if (records_ != steps) broken("the records have {} steps, or not each once", records_.size());
    return outcome_;
  }

  const RecoveryOptions options_;
  std::mt19937_64 random_;
  AgentState agent_;
  std::vector<bool> able_;             // by rank, as each has announced
  std::vector<MembershipPlan> plans_;  // by generation
  std::vector<Group> groups_;          // by generation
  std::vector<Rank> ranks_;            // including dead ones
  std::map<std::pair<std::uint64_t, std::string>, std::pair<Digest, std::int64_t>> copies_;
  int deaths_since_copies_ = 1;     // since all members of a group had kept copies; before that it takes one alone
  int deaths_since_training_ = 0;   // since all members of a group had trained on
  std::vector<int> unplanned_;      // ranks that have died, and are in no plan yet
  std::set<std::string> reported_;  // ranks that others have reported as lost, and that the launcher has not ended yet
  int cuts_ = 0, changes_ = 0;      // so far
  std::optional<std::string> additional_;  // the name of the rank beyond the others, if there is one
  std::vector<std::int64_t> records_;
  RecoveryOutcome outcome_;
};

}  // namespace

RecoveryOutcome run_recovery_schedule(const RecoveryOptions& options) {
  return Schedule(options).run();
}

}  // namespace ddprun::testing
