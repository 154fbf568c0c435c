#include "worker/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/error.h"

namespace ddprun::optim {
namespace {

using Options = LrScheduleOptions;

// Goes from `from` to `to` along half a cosine; share: 0 .. 1 of the way.
double cosine_between(double from, double to, double share) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

// Returns the share of the curve after the warm-up that is done, 0 .. 1.
double share_done(const Options& o, std::int64_t time) {
  const auto length = o.length - o.warmup;
  return static_cast<double>(std::min(time, length)) / static_cast<double>(length);
}

double constant(const Options& o, std::int64_t) {
  return o.lr;
}

// StepLR
double step(const Options& o, std::int64_t time) {
  return o.lr * std::pow(o.gamma, static_cast<double>(time / o.step_size));
}

// MultiStepLR
double multistep(const Options& o, std::int64_t time) {
  const auto passed = std::upper_bound(o.milestones.begin(), o.milestones.end(), time) - o.milestones.begin();
  return o.lr * std::pow(o.gamma, static_cast<double>(passed));
}

// CosineAnnealingLR, with T_max the length and eta_min = lr * end_factor
double cosine(const Options& o, std::int64_t time) {
  return cosine_between(o.lr, o.lr * o.end_factor, share_done(o, time));
}

// LinearLR, with start_factor 1 and total_iters the length
double linear(const Options& o, std::int64_t time) {
  return o.lr * (1 + (o.end_factor - 1) * share_done(o, time));
}

// OneCycleLR, with two phases, cosine annealing and cycle_momentum = False
double onecycle(const Options& o, std::int64_t time) {
  const auto last = static_cast<double>(o.length - o.warmup - 1);
  const double peak = o.pct_start * (last + 1) - 1;
  const double initial = o.lr / o.div_factor;
  const double t = std::min(static_cast<double>(time), last);
  if (t <= peak) return cosine_between(initial, o.lr, peak > 0 ? t / peak : 1);
  return cosine_between(o.lr, initial / o.final_div_factor, (t - peak) / (last - peak));
}

// LambdaLR with sqrt(w / (t + w)), w the warm-up: Vaswani et al., "Attention is all you need" (2017), section 5.3
double inverse_sqrt(const Options& o, std::int64_t time) {
  const auto warmup = static_cast<double>(std::max<std::int64_t>(o.warmup, 1));
  return o.lr * std::sqrt(warmup / (static_cast<double>(time) + warmup));
}

struct CurveEntry {
  std::string_view name;
  double (*curve)(const Options&, std::int64_t);
  bool has_length = false;
};

constexpr CurveEntry rows[] = {
    {"constant", constant},         {"step", step},           {"multistep", multistep},
    {"cosine", cosine, true},       {"linear", linear, true}, {"onecycle", onecycle, true},
    {"inverse_sqrt", inverse_sqrt}, {"plateau", constant},
};

const CurveEntry& row_of(std::string_view name) {
  for (const auto& row : rows)
    if (row.name == name) return row;
  throw make_error(Errc::usage, "there is no learning rate schedule {}", name);
}

}  // namespace

LrSchedule::LrSchedule(LrScheduleOptions options) : options_(std::move(options)), curve_(row_of(options_.name).curve) {}

double LrSchedule::at(std::int64_t time) const {
  if (time >= options_.warmup) return curve_(options_, time - options_.warmup);
  const double share = static_cast<double>(time) / static_cast<double>(options_.warmup);
  return curve_(options_, 0) * (options_.warmup_start + (1 - options_.warmup_start) * share);
}

bool LrSchedule::has_length(std::string_view name) {
  return row_of(name).has_length;
}

std::vector<std::string> LrSchedule::names() {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace ddprun::optim
