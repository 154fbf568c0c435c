#include "launcher/agent/replacements.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/membership/worker_names.h"
#include "rendezvous/recovery/recovery_keys.h"

namespace ddprun {
namespace {

// Back ends in which rounds do not change name no workers.
std::vector<std::string> names_of(const Round& round) {
  std::vector<std::string> names;
  for (auto member : round.members) {
    if (member.workers.empty()) name_workers(member, round.group_generation);
    names.insert(names.end(), member.workers.begin(), member.workers.end());
  }
  return names;
}

}  // namespace

void Replacements::begin(const Round& round) {
  group_rank_ = round.self;
  restarts_ = round.restarts_used;
  generation_ = round.group_generation;
  members_ = names_of(round);
}

void Replacements::change(const RoundChanged& change) {
  members_ = names_of(change.round);
  group_rank_ = change.round.self;
  generation_ = change.round.group_generation;
}

Survivors Replacements::survivors(const std::vector<WorkerFailure>& failures,
                                  const std::vector<WorkerCondition>& workers) const {
  const bool asks = possible() && rules_.asks_server && !workers.empty() &&
                    std::ranges::none_of(failures, &WorkerFailure::usage_error) && obstacle(failures, workers).empty();
  if (!asks) return Survivors::stopped;
  return rules_.scope == RestartScope::failed ? Survivors::run_or_end : Survivors::run;
}

std::string Replacements::obstacle(const std::vector<WorkerFailure>& failures,
                                   const std::vector<WorkerCondition>& workers) {
  for (const auto& failure : failures) {
    const auto& worker = workers[static_cast<std::size_t>(failure.local_rank)];
    // Its replacement would be a second process of the rank.
    if (worker.running) return fmt::format("the process of rank {} still runs", failure.rank);
    if (!worker.started) return "it was not started";
  }
  return "";
}

Refusal Replacements::refusal(const std::vector<WorkerFailure>& failures,
                              const std::vector<WorkerCondition>& workers) const {
  if (!possible()) return {"single workers are not replaced"};
  if (std::ranges::any_of(failures, &WorkerFailure::usage_error)) return {"its settings are refused"};
  if (rules_.asks_server) return {workers.empty() ? "it was not started" : obstacle(failures, workers)};
  const auto unable = std::ranges::find(workers, false, &WorkerCondition::able);
  if (unable != workers.end())
    return {fmt::format("rank {} has not announced that it can recover", unable - workers.begin()), true};
  if (workers.size() != members_.size()) return {"no rank has announced that it can recover", true};
  if (const auto reason = obstacle(failures, workers); !reason.empty()) return {reason};
  if (failures.size() == members_.size()) return {"no rank is left"};
  if (restarts() + static_cast<int>(failures.size()) > rules_.max_restarts) return {"no restart is left"};
  return {};
}

std::string Replacements::budget_text() const {
  return rules_.max_restarts == 1 ? "the one restart is used"
                                  : fmt::format("all {} restarts used", rules_.max_restarts);
}

ReplaceWorkers Replacements::replace(const std::vector<WorkerFailure>& failures) {
  replaced_ += static_cast<int>(failures.size());
  restarts_ += static_cast<int>(failures.size());
  return replace_in(generation_ + 1, failures);
}

ReplaceWorkers Replacements::follow(const WorkersReplaced& decided) {
  restarts_ = decided.restarts_used;
  return replace_in(decided.group_generation, decided.failures);
}

ReplaceWorkers Replacements::replace_in(std::uint64_t generation, const std::vector<WorkerFailure>& failures) {
  generation_ = generation;
  ReplaceWorkers action{.generation = generation_, .local_ranks = {}, .members = {}, .restarts_used = restarts()};
  for (const auto& failure : failures) {
    if (failure.group_rank == group_rank_) action.local_ranks.push_back(failure.local_rank);
    members_.at(static_cast<std::size_t>(failure.rank)) = member_name(failure.rank, generation_);
  }
  action.members = members_;
  return action;
}

}  // namespace ddprun
