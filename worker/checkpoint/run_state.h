#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::checkpoint {

// Of float16: see optim::GradScaler.
struct LossScale {
  double scale = 0;
  std::int64_t good_steps = 0;

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// Of optim.schedule = plateau: see trainer::Plateau.
struct Plateau {
  double lr = 0;
  std::optional<double> best = {};  // none: there was no evaluation
  std::int64_t bad_evaluations = 0;
  std::int64_t cooldown = 0;  // evaluations left of it

  friend bool operator==(const Plateau&, const Plateau&) = default;
};

// Where a training run stands, besides its tensors: the content of state.json. With the same program, configuration and
// world size, going on from here gives the same bits as never having stopped: data order is a pure function of (seed,
// epoch, position), dropout of (seed, step, rank).
struct RunState {
  std::int64_t step = 0;     // optimizer steps done, skipped ones included
  std::int64_t epoch = 0;    // the one that goes on
  std::int64_t samples = 0;  // of that epoch, done by all ranks together: the length of a prefix of the epoch's order
  std::uint64_t seed = 0;
  int world_size = 1;
  std::int64_t batch_size = 1;                // per rank and micro-batch
  std::int64_t accumulate = 1;                // micro-batches a step
  std::int64_t generation = 0;                // of the job when this was saved
  double lr = 0;                              // of the last step
  std::int64_t skipped_steps = 0;             // in which the optimizer changed nothing
  std::optional<double> best_loss = {};       // the lowest of the evaluations; none: there was none
  std::optional<LossScale> loss_scale = {};   // none: the run has no scale
  std::optional<Plateau> plateau = {};        // none: the run has another schedule
  std::vector<double> gradient_norms = {};    // the last ones, with optim.skip_outliers
  std::string ledger = {};                    // the session of data.ledger that made the last step; empty: none
  std::map<std::string, std::string> config;  // settings that decide the bits, for comparison when the run goes on

  friend bool operator==(const RunState&, const RunState&) = default;
};

// SHA-256 of the settings, "key=value" lines in the order of keys.
std::string config_digest(const std::map<std::string, std::string>& config);

std::string to_json(const RunState& state);
// Throws Errc::io naming source, the member, its value and what it has to be, if no run can stand there: a member is
// out of bounds, or contradicts another.
void check_consistent(const RunState& state, const std::string& source);
// Throws Errc::io naming source and the member that is missing or wrong; as check_consistent().
RunState run_state_from_json(std::string_view text, const std::string& source);

}  // namespace ddprun::checkpoint
