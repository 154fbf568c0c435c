#include "worker/parallel/forms/pipeline/stage_balancer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddprun::pipeline {
namespace {

constexpr double least_gain = 0.05;
constexpr double weight_of_new = 0.5;
constexpr int first_agreement = 2;       // number of measurements
constexpr int most_agreement = 1 << 20;  // doubling stops here
constexpr double most_correction = 4;    // limit of the factor for a layer's cost in one move

std::vector<double> in_ms(const std::vector<double>& seconds) {
  std::vector<double> all = seconds;
  for (double& each : all) each *= 1e3;
  return all;
}

}  // namespace

StageBalancer::StageBalancer(std::vector<double> costs, std::vector<std::size_t> cuts)
    : costs_(std::move(costs)), cuts_(std::move(cuts)), histories_(cuts_.size()) {}

std::optional<StageBalancer::Decision> StageBalancer::observe(const std::vector<double>& seconds) {
  learn_cost(seconds);
  note(seconds);
  const auto best = best_move();
  if (!best || best->slowest > (1 - least_gain) * slowest(cuts_)) {
    candidate_.reset();
    return std::nullopt;
  }
  agreeing_ = candidate_ == best->move ? agreeing_ + 1 : 1;
  candidate_ = best->move;
  if (agreeing_ < needed_for(best->move)) return std::nullopt;
  return make(*best);
}

// The first measurement after a move counts alone: those before it were of other stages.
void StageBalancer::note(const std::vector<double>& seconds) {
  const bool first = seconds_.empty();
  seconds_.resize(seconds.size());
  for (std::size_t s = 0; s < seconds.size(); ++s) {
    const double now = std::max(seconds[s], 1e-9);
    seconds_[s] = first ? now : weight_of_new * now + (1 - weight_of_new) * seconds_[s];
  }
}

// If both ranks are as fast as before the move, the giving stage's time has fallen, and the taking one's has risen, in
// proportion to the layer's cost.
void StageBalancer::learn_cost(const std::vector<double>& seconds) {
  if (!made_) return;
  const Made made = *std::exchange(made_, std::nullopt);
  const std::size_t from = stage_of(made.move, true), to = stage_of(made.move, false);
  const double given = made.cost_from * (1 - seconds[from] / made.seconds_from);
  const double taken = made.cost_to * (seconds[to] / made.seconds_to - 1);
  const std::size_t layer = cuts_[made.move.cut] - (made.move.forward ? 0 : 1);
  double& cost = costs_[layer];
  cost = std::clamp((given + taken) / 2, cost / most_correction, cost * most_correction);
}

std::optional<StageBalancer::Prediction> StageBalancer::best_move() const {
  std::optional<Prediction> best;
  for (std::size_t cut = 0; cut < cuts_.size(); ++cut)
    for (const bool forward : {true, false}) {
      const Move move{cut, forward};
      if (!is_possible(move)) continue;
      const double time = slowest(after(move));
      if (!best || time < best->slowest) best = Prediction{move, time};
    }
  return best;
}

// The move is possible only if the giving stage keeps a layer.
bool StageBalancer::is_possible(const Move& move) const {
  const auto moved = after(move);
  const std::size_t begin = move.cut == 0 ? 0 : moved[move.cut - 1];
  const std::size_t end = move.cut + 1 < moved.size() ? moved[move.cut + 1] : costs_.size();
  return begin < moved[move.cut] && moved[move.cut] < end;
}

std::vector<std::size_t> StageBalancer::after(const Move& move) const {
  auto cuts = cuts_;
  move.forward ? --cuts[move.cut] : ++cuts[move.cut];
  return cuts;
}

double StageBalancer::cost_of(const std::vector<std::size_t>& cuts, std::size_t stage) const {
  const auto at = [&](std::size_t layer) { return costs_.begin() + static_cast<std::ptrdiff_t>(layer); };
  const std::size_t begin = stage == 0 ? 0 : cuts[stage - 1];
  const std::size_t end = stage < cuts.size() ? cuts[stage] : costs_.size();
  return std::accumulate(at(begin), at(end), 0.0);
}

// Returns the seconds of the slowest stage.
double StageBalancer::slowest(const std::vector<std::size_t>& cuts) const {
  double most = 0;
  for (std::size_t s = 0; s < seconds_.size(); ++s)
    most = std::max(most, seconds_[s] * cost_of(cuts, s) / cost_of(cuts_, s));
  return most;
}

int StageBalancer::needed_for(const Move& move) const {
  const History& history = histories_[move.cut];
  const bool undoes = history.last && history.last->forward != move.forward;
  return undoes ? std::min(2 * history.agreement, most_agreement) : std::max(history.agreement, first_agreement);
}

StageBalancer::Decision StageBalancer::make(const Prediction& prediction) {
  const Move move = prediction.move;
  const std::size_t from = stage_of(move, true), to = stage_of(move, false);
  const auto cuts = after(move);
  Decision decision{
      .cuts = cuts,
      .layer = layer_of(move),
      .from = from,
      .to = to,
      .reason = fmt::format("stages compute {:.1f} ms a step: the slowest would take {:.1f} ms in place "
                            "of {:.1f} ms",
                            fmt::join(in_ms(seconds_), ", "), prediction.slowest * 1e3, slowest(cuts_) * 1e3)};
  histories_[move.cut] = {move, needed_for(move)};
  made_ = Made{move, cost_of(cuts_, from), cost_of(cuts_, to), seconds_[from], seconds_[to]};
  cuts_ = cuts;
  seconds_.clear();
  candidate_.reset();
  agreeing_ = 0;
  return decision;
}

}  // namespace ddprun::pipeline
