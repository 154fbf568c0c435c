#include "launcher/dashboard/job_view.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/rounding.h"

namespace ddprun::dashboard {

double goodput(const JobView& view) {
  double all = 0;
  for (const double part : view.seconds) all += part;
  all -= view.seconds[static_cast<std::size_t>(Part::startup)];
  return all > 0 ? view.seconds[static_cast<std::size_t>(Part::training)] / all : TrainingRecord::unknown;
}

std::string duration_text(double seconds) {
  const auto whole = rounded(std::max(0.0, seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string number_text(std::int64_t number) {
  auto text = std::to_string(number);
  for (auto end = static_cast<std::ptrdiff_t>(text.size()) - 3; end > (number < 0 ? 1 : 0); end -= 3)
    text.insert(static_cast<std::size_t>(end), ",");
  return text;
}

namespace {

std::string training_text(const JobView& view) {
  const auto& training = *view.training;
  auto text = fmt::format(", step {} of {}", number_text(training.step), number_text(training.total_steps));
  if (view.state == State::training && std::isfinite(training.samples_per_s))
    text += fmt::format(", {} samples/s", number_text(rounded(training.samples_per_s)));
  if (const double share = goodput(view); std::isfinite(share)) text += fmt::format(", goodput {:.1f} %", 100 * share);
  return text;
}

}  // namespace

std::string sentence(const JobView& view) {
  std::string text(name_of(view.state));
  if (view.state == State::forming && !view.waiting_for.empty()) text += ": " + view.waiting_for;
  if (view.training) text += training_text(view);
  if (const int recoveries = view.recoveries(); recoveries > 0)
    text += fmt::format(", {} {}", recoveries, recoveries == 1 ? "recovery" : "recoveries");
  if (view.checkpoint.count() > 0)
    text += fmt::format(", checkpoint {} old",
                        duration_text(std::chrono::duration<double>(view.now - view.checkpoint).count()));
  if (view.state == State::training && view.training && std::isfinite(view.training->seconds_left))
    text += fmt::format(", {} left", duration_text(view.training->seconds_left));
  return text;
}

}  // namespace ddprun::dashboard
