#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::checkpoint {

// The loss scale of a float16 run: see optim::GradScaler.
struct LossScale {
  double scale = 0;
  std::int64_t good_steps = 0;

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// The state of optim.schedule = plateau: see trainer::Plateau.
struct Plateau {
  double lr = 0;
  std::optional<double> best = {};  // none if there was no evaluation yet
  std::int64_t bad_evaluations = 0;
  std::int64_t cooldown = 0;  // evaluations left of the cooldown

  friend bool operator==(const Plateau&, const Plateau&) = default;
};

// The position of a training run, besides its tensors: the content of state.json. With the same program, configuration
// and world size, a run that goes on from here gives the same bits as one that never stopped: data order is a pure
// function of (seed, epoch, position), dropout of (seed, epoch, sample).
struct RunState {
  std::int64_t step = 0;     // optimizer steps done, skipped ones included
  std::int64_t epoch = 0;    // the one that is under way
  std::int64_t samples = 0;  // those of that epoch, done by all ranks: the length of a prefix of the epoch's order
  std::uint64_t seed = 0;
  int world_size = 1;
  std::int64_t batch_size = 1;                // per rank and micro-batch
  std::int64_t accumulate = 1;                // micro-batches a step
  std::int64_t generation = 0;                // that of the job when this was saved
  double lr = 0;                              // that of the last step
  std::int64_t skipped_steps = 0;             // those in which the optimizer changed nothing
  std::optional<double> best_loss = {};       // the lowest of the evaluations; none if there was none
  std::optional<LossScale> loss_scale = {};   // none if the run has no scale
  std::optional<Plateau> plateau = {};        // none if the run has another schedule
  std::vector<double> gradient_norms = {};    // the latest ones, with optim.skip_outliers
  std::string ledger = {};                    // the session of data.ledger that made the last step; empty if none
  std::map<std::string, std::string> config;  // settings that decide the bits, for comparison when the run goes on

  friend bool operator==(const RunState&, const RunState&) = default;
};

// Returns the SHA-256 of the settings, as "key=value" lines in the order of keys.
std::string config_digest(const std::map<std::string, std::string>& config);

std::string to_json(const RunState& state);
// Throws Errc::io naming source, the member, its value and what it has to be, if no run can have this state: a member
// is out of bounds, or contradicts another.
void check_consistent(const RunState& state, const std::string& source);
// Throws Errc::io naming source and the member that is missing or wrong, and what check_consistent() throws.
RunState run_state_from_json(std::string_view text, const std::string& source);

}  // namespace ddprun::checkpoint
