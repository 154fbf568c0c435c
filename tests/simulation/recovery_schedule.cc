#include "tests/simulation/recovery_schedule.h"

#include <algorithm>
#include <functional>
#include <variant>

#include "launcher/agent/agent_state.h"
#include "tests/simulation/recovery_job.h"
#include "tests/simulation/recovery_training.h"

namespace ddprun::testing {
namespace {

class Schedule {
 public:
  explicit Schedule(const RecoveryOptions& options)
      : job_(options), agent_({}, {.single_workers = true, .max_restarts = options.restarts}) {
    const Round round{.members = {{.node_id = "a", .host = "a", .nproc = options.ranks}}, .world_size = options.ranks};
    agent_.on(RoundProposed{.round = round, .reason = "first round"});
    agent_.on(RoundStarted{round});
  }

  RecoveryOutcome run() {
    for (int event = 0; event < 200'000; ++event) {
      if (job_.outcome.gave_up || job_.outcome.restarted || all_finished()) return end();
      std::vector<std::function<void()>> possible = events();
      if (possible.empty()) break;
      possible[job_.random() % possible.size()]();
      if (!job_.outcome.broken.empty()) return job_.outcome;
    }
    job_.outcome.broken.push_back("the job does not end");
    return job_.outcome;
  }

 private:
  bool all_finished() const {
    return job_.unplanned.empty() &&
           std::ranges::all_of(job_.ranks, [](const Rank& r) { return r.finished || !r.alive; });
  }

  std::vector<std::function<void()>> events() {
    std::vector<std::function<void()>> all;
    for (Rank& rank : job_.ranks) {
      if (!rank.alive || rank.finished) continue;
      if (!rank.frozen) all.emplace_back([this, &rank] { training_.progress(rank); });
      if (rank.frozen) all.emplace_back([this, &rank] { run_again(rank); });
      if (rank.frozen && job_.newest_group_of(rank).lost.empty()) all.emplace_back([this, &rank] { job_.lose(rank); });
    }
    if (!job_.reported.empty()) all.emplace_back([this] { end_reported(); });
    if (job_.outcome.freezes < job_.options.freezes && job_.random() % 40 == 0) all.assign(1, [this] { freeze(); });
    if (cuts_ < job_.options.cuts && job_.random() % 40 == 0) all.assign(1, [this] { cut(); });
    if (!job_.unplanned.empty()) all.emplace_back([this] { publish(); });
    if (changes_ < job_.options.changes && !job_.any_finished() && job_.random() % 40 == 0)
      all.assign(1, [this] { change(); });
    // Deaths are sometimes close together, but mostly rare.
    const bool soon = job_.random() % 4 == 0;
    if (job_.outcome.deaths < job_.options.deaths && (job_.random() % 40 == 0 || (soon && !job_.unplanned.empty())))
      all.assign(1, [this] { kill(); });
    return all;
  }

  // Returns null if no rank trains, or recovers, and is not frozen.
  Rank* any_rank() {
    std::vector<Rank*> all;
    for (Rank& rank : job_.ranks)
      if (rank.alive && !rank.finished && !rank.frozen) all.push_back(&rank);
    return all.empty() ? nullptr : all[job_.random() % all.size()];
  }

  void kill() {
    Rank* const target = any_rank();
    if (!target) return;
    Rank& rank = *target;
    if (std::holds_alternative<RecoveryState::CopyState>(rank.request)) ++job_.outcome.deaths_while_copying;
    if (std::holds_alternative<RecoveryState::FormGroup>(rank.request) ||
        std::holds_alternative<RecoveryState::AwaitPlan>(rank.request))
      ++job_.outcome.deaths_while_forming;
    if (!job_.unplanned.empty()) ++job_.outcome.double_deaths;
    job_.end(rank);
  }

  void freeze() {
    Rank* const target = any_rank();
    if (!target) return;
    ++job_.outcome.freezes;
    target->frozen = true;
  }

  void run_again(Rank& rank) {
    rank.frozen = false;
    if (!job_.newest_group_of(rank).lost.empty()) ++job_.outcome.returned;
  }

  void cut() {
    Rank* const target = any_rank();
    if (!target || !job_.newest_group_of(*target).lost.empty()) return;
    ++cuts_;
    job_.lose(*target);
  }

  void end_reported() {
    for (const auto& name : std::exchange(job_.reported, {}))
      if (Rank* const rank = job_.living(name); rank && !rank->finished) {
        ++job_.outcome.ended;
        job_.end(*rank);
      }
  }

  // A rank beyond the others joins, or leaves in order.
  void change() {
    ++changes_;
    const bool joins = !job_.additional;
    auto members = job_.plans.back().members;
    if (joins) {
      Rank rank(job_.options.ranks, job_.plans.size(), std::nullopt, true);
      rank.request = rank.state.on_failure("it joins");
      job_.additional = rank.name;
      members.push_back(rank.name);
      job_.ranks.push_back(std::move(rank));
    } else {
      std::erase(members, *std::exchange(job_.additional, std::nullopt));
    }
    job_.decide(std::move(members));
  }

  // Replaces the ranks that have died; not the additional one.
  void replace() {
    auto members = job_.plans.back().members;
    for (const int number : std::exchange(job_.unplanned, {})) {
      if (number == job_.options.ranks) {
        std::erase(members, job_.additional.value_or(""));
        job_.additional.reset();
        continue;
      }
      Rank rank(number, job_.plans.size(), std::nullopt, true);
      rank.request = rank.state.on_failure("it joins");
      members.at(static_cast<std::size_t>(number)) = rank.name;
      job_.ranks.push_back(std::move(rank));
    }
    job_.decide(std::move(members));
  }

  // The launcher's agent learns of all deaths since the last report.
  void publish() {
    if (job_.options.changes > 0) return replace();
    std::vector<WorkerFailure> failures;
    for (const int number : std::exchange(job_.unplanned, {}))
      failures.push_back({.rank = number, .local_rank = number, .signal_number = 9});
    const auto actions = agent_.on_workers_failed(failures, conditions());
    for (const auto& action : actions)
      if (const auto* replace = std::get_if<ReplaceWorkers>(&action)) return start(*replace, failures);
    job_.outcome.restarted = true;
    const bool budget = job_.outcome.replaced + static_cast<int>(failures.size()) > job_.options.restarts;
    const bool none_left = static_cast<int>(failures.size()) == job_.options.ranks;
    if (!budget && !none_left && !job_.any_finished()) job_.broken("the launcher refuses to replace a rank");
    // The job ends with the first failure's exit code, or the rendezvous decides on a restart.
    if (std::ranges::none_of(actions, [](const auto& each) { return std::holds_alternative<StopWorkers>(each); }))
      job_.broken("the launcher leaves the other ranks alone");
  }

  // Returns those of the newest process of each rank.
  std::vector<WorkerCondition> conditions() const {
    std::vector<WorkerCondition> all(job_.able.size());
    for (const Rank& rank : job_.ranks)
      all[static_cast<std::size_t>(rank.number)].running = rank.alive && !rank.finished;
    for (std::size_t i = 0; i < all.size(); ++i) all[i].able = job_.able[i];
    return all;
  }

  void start(const ReplaceWorkers& replace, const std::vector<WorkerFailure>& failures) {
    job_.outcome.replaced += static_cast<int>(failures.size());
    if (replace.generation != job_.plans.size())
      job_.broken("generation {} follows {}", replace.generation, job_.plans.size() - 1);
    if (replace.restarts_used != job_.outcome.replaced || job_.outcome.replaced > job_.options.restarts)
      job_.broken("{} restarts are counted for {} replacements", replace.restarts_used, job_.outcome.replaced);
    for (const int number : replace.local_ranks) {
      Rank rank(number, replace.generation, std::nullopt, !job_.is_sharded());
      rank.request = rank.state.on_failure("it joins");
      job_.ranks.push_back(std::move(rank));
    }
    job_.plans.push_back({replace.generation, replace.members});
    job_.groups.emplace_back();
  }

  RecoveryOutcome end() {
    if (job_.outcome.gave_up || job_.outcome.restarted) return job_.outcome;
    for (const Rank& rank : job_.ranks) {
      Digest expected = job_.initial(rank.number);
      for (int step = 1; step <= job_.options.steps; ++step) expected = after_step(expected, step);
      if (rank.alive && rank.digest != expected) job_.broken("{} ends with another digest", rank.name);
    }
    std::vector<std::int64_t> steps;
    for (int step = 1; step <= job_.options.steps; ++step) steps.push_back(step);
    if (training_.records() != steps)
      job_.broken("the records have {} steps, or not each once", training_.records().size());
    return job_.outcome;
  }

  RecoveryJob job_;
  RecoveryTraining training_{job_};
  AgentState agent_;
  int cuts_ = 0, changes_ = 0;  // so far
};

}  // namespace

RecoveryOutcome run_recovery_schedule(const RecoveryOptions& options) {
  return Schedule(options).run();
}

}  // namespace ddprun::testing
