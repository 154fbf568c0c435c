#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/simulation/recovery_rank.h"
#include "tests/simulation/recovery_schedule.h"

namespace ddprun::testing {

// The job of a recovery_schedule: its ranks, the plans of its groups, and what has come of it so far. The schedule
// decides what happens next, and RecoveryTraining what a rank does then. A plain value.
struct RecoveryJob {
  explicit RecoveryJob(const RecoveryOptions& options);

  bool is_sharded() const { return options.parts > 1; }
  std::vector<int> parts() const;
  int part_of(int number) const { return number % options.parts; }
  Digest initial(int number) const { return static_cast<Digest>(1 + part_of(number)); }
  bool any_finished() const;
  Rank* living(const std::string& name);
  const MembershipPlan& plan_of(const Rank& rank) const;
  Group& group_of(const Rank& rank) { return groups[static_cast<std::size_t>(rank.state.generation())]; }
  bool is_first(const Rank& rank) const { return plan_of(rank).members.front() == rank.name; }
  // The first loss that a group knows of ends it.
  void lose(Rank& rank);
  Group& newest_group_of(const Rank& rank);
  int dead_among(const std::vector<std::string>& members);
  // Its process ends.
  void end(Rank& rank);
  void decide(std::vector<std::string> members);
  template <class... Values>
  void broken(fmt::format_string<Values...> text, Values&&... values) {
    outcome.broken.push_back(
        fmt::format("seed {}: {}", options.seed, fmt::format(text, std::forward<Values>(values)...)));
  }

  const RecoveryOptions options;
  std::mt19937_64 random;
  std::vector<bool> able;             // by rank, as each has announced
  std::vector<MembershipPlan> plans;  // by generation
  std::vector<Group> groups;          // by generation
  std::vector<Rank> ranks;            // including dead ones
  int deaths_since_copies = 1;        // since all members of a group had kept copies; before that it takes one alone
  int deaths_since_training = 0;      // since all members of a group had trained on
  std::vector<int> unplanned;         // ranks that have died, and are in no plan yet
  std::set<std::string> reported;  // ranks that others have reported as lost, and that the launcher has not ended yet
  std::optional<std::string> additional;  // the name of the rank beyond the others, if there is one
  RecoveryOutcome outcome;
};

}  // namespace ddprun::testing
