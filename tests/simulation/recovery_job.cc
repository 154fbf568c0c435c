#include "tests/simulation/recovery_job.h"

#include <algorithm>
#include <utility>

namespace ddprun::testing {

RecoveryJob::RecoveryJob(const RecoveryOptions& all_options)
    : options(all_options), random(options.seed), able(static_cast<std::size_t>(options.ranks), true) {
  std::vector<std::string> members;
  for (int i = 0; i < options.ranks; ++i) {
    Rank rank(i, 0, 0, !is_sharded());
    rank.digest = initial(i);
    rank.knows_others = true;
    rank.parts = parts();
    members.push_back(rank.name);
    ranks.push_back(std::move(rank));
  }
  decide(std::move(members));
}

std::vector<int> RecoveryJob::parts() const {
  std::vector<int> all;
  for (int i = 0; i < options.ranks; ++i) all.push_back(part_of(i));
  return all;
}

bool RecoveryJob::any_finished() const {
  return std::ranges::any_of(ranks, [](const Rank& r) { return r.finished; });
}

Rank* RecoveryJob::living(const std::string& name) {
  const auto found = std::ranges::find_if(ranks, [&](const Rank& r) { return r.name == name && r.alive; });
  return found == ranks.end() ? nullptr : &*found;
}

const MembershipPlan& RecoveryJob::plan_of(const Rank& rank) const {
  return plans[static_cast<std::size_t>(rank.state.generation())];
}

void RecoveryJob::lose(Rank& rank) {
  ++outcome.lost;
  newest_group_of(rank).lost.insert(rank.name);
}

Group& RecoveryJob::newest_group_of(const Rank& rank) {
  const bool is_member = std::ranges::count(plans.back().members, rank.name) > 0;
  return is_member ? groups.back() : group_of(rank);
}

int RecoveryJob::dead_among(const std::vector<std::string>& members) {
  return static_cast<int>(std::ranges::count_if(members, [&](const auto& each) { return !living(each); }));
}

void RecoveryJob::end(Rank& rank) {
  ++outcome.deaths;
  ++deaths_since_copies;
  ++deaths_since_training;
  rank.alive = false;
  unplanned.push_back(rank.number);
}

void RecoveryJob::decide(std::vector<std::string> members) {
  plans.push_back({plans.size(), std::move(members)});
  groups.emplace_back();
}

}  // namespace ddprun::testing
