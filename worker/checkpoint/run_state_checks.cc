#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/checkpoint/run_state.h"

namespace ddprun::checkpoint {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t largest_batch = 1'000'000'000;  // limit of train.batch_size
constexpr std::size_t most_norms = 100;                // limit of optim.skip_outliers

// Every complaint names the file, the member, its value and what would be right.
class MemberChecks {
 public:
  explicit MemberChecks(const std::string& source) : source_(source) {}

  void whole(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high,
             std::string_view reason = "") const {
    if (value >= low && value <= high) return;
    const auto range = high == most ? fmt::format("at least {}", low) : fmt::format("{} to {}", low, high);
    fail(name, fmt::format("{}", value), range, reason);
  }
  void finite(std::string_view name, double value, bool is_above_zero) const {
    if (std::isfinite(value) && (is_above_zero ? value > 0 : value >= 0)) return;
    fail(name, fmt::format("{}", value), is_above_zero ? "a number above 0" : "a number, at least 0", "");
  }
  void finite(std::string_view name, const std::optional<double>& value) const {
    if (value && !std::isfinite(*value)) fail(name, fmt::format("{}", *value), "a number", "");
  }
  // Checks that a member equals the setting that it was made from.
  void same(std::string_view name, const std::string& value, const std::map<std::string, std::string>& config,
            const std::string& key) const {
    const auto setting = config.find(key);
    if (setting != config.end() && setting->second != value)
      fail(name, value, setting->second, fmt::format("the value of config.{}", key));
  }
  [[noreturn]] void fail(std::string_view name, std::string_view value, std::string_view expected,
                         std::string_view reason) const {
    throw make_error(Errc::io, "{}: member {} is {}, expected {}{}{}", source_, name, value, expected,
                     reason.empty() ? "" : ", ", reason);
  }

 private:
  const std::string& source_;
};

void check_position(const RunState& s, const MemberChecks& check) {
  check.whole("step", s.step, 0, most);
  check.whole("epoch", s.epoch, 0, s.step, "since each epoch has a step");
  // The epoch under way has had a step if it has had samples.
  check.whole("samples", s.samples, 0, s.epoch < s.step ? most : 0,
              s.epoch < s.step ? "" : "since no step of this epoch is done");
  check.whole("skipped_steps", s.skipped_steps, 0, s.step, "since these are among the steps");
}

void check_rules(const RunState& s, const MemberChecks& check) {
  check.finite("best_loss", s.best_loss);
  if (s.loss_scale) {
    check.finite("loss_scale.scale", s.loss_scale->scale, true);
    check.whole("loss_scale.good_steps", s.loss_scale->good_steps, 0, s.step, "since these are among the steps");
  }
  if (s.plateau) {
    check.finite("plateau.lr", s.plateau->lr, false);
    check.finite("plateau.best", s.plateau->best);
    check.whole("plateau.bad_evaluations", s.plateau->bad_evaluations, 0, s.step, "since each follows a step");
    check.whole("plateau.cooldown", s.plateau->cooldown, 0, most);
  }
  check.whole("gradient_norms", static_cast<std::int64_t>(s.gradient_norms.size()), 0,
              std::min(static_cast<std::int64_t>(most_norms), s.step), "the number of elements");
  for (const double norm : s.gradient_norms) check.finite("gradient_norms", norm, false);
}

}  // namespace

void check_consistent(const RunState& s, const std::string& source) {
  const MemberChecks check(source);
  check_position(s, check);
  check.whole("world_size", s.world_size, 1, most);
  check.whole("batch_size", s.batch_size, 1, largest_batch);
  check.whole("accumulate", s.accumulate, 1, largest_batch);
  check.whole("generation", s.generation, 0, most);
  check.finite("lr", s.lr, false);
  check.same("seed", fmt::format("{}", s.seed), s.config, "train.seed");
  check.same("accumulate", fmt::format("{}", s.accumulate), s.config, "train.accumulate");
  check_rules(s, check);
}

}  // namespace ddprun::checkpoint
