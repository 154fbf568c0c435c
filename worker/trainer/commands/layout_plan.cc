#include "worker/trainer/commands/layout_plan.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "common/standard_output.h"
#include "worker/trainer/commands/computed_layouts.h"
#include "worker/trainer/commands/dry_step.h"
#include "worker/trainer/commands/pipeline_bubble.h"

namespace ddprun::trainer {
namespace {

// Returns the settings for errors about a layout, which show the settings of the user and those of the layout.
Settings settings_of(TrainConfig& config, const Settings& given, const plugin::Registry& registry) {
  Settings settings;
  bind(settings, config, registry);
  for (const auto& each : given.all()) {
    const auto value = settings.find(each.key)->print();
    if (value != each.print())
      settings.assign(each.key, value, {Origin::command_line, "layout"});
    else if (each.source.origin != Origin::fallback)
      settings.assign(each.key, value, each.source);
  }
  return settings;
}

// Returns what distinguishes the jobs that are measured for layouts of one job.
std::string key_of(const SmallJob& job) {
  const auto& p = job.config.parallel;
  std::string key = fmt::format("{} ranks:", job.ranks);
  for (const ModelAxis* axis : axes_in_use(p.ranks))
    key += fmt::format(" {} {}", axis->name(), p.ranks.on(axis->name()));
  return key + fmt::format(" {} {} {} {}, {} x {} {}", p.zero, p.sharded.shard_group, p.sequence, p.split,
                           job.config.train.batch_size, job.config.train.accumulate, p.micro_batches);
}

// The bubbles of the layouts of one job: many have the same pipeline.
class Bubbles {
 public:
  double of(const TrainConfig::Parallel& p) {
    const auto [known, is_new] = known_.try_emplace({p.ranks.on("pipeline"), p.micro_batches});
    if (is_new) known->second = bubble_of(p);
    return known->second;
  }

 private:
  std::map<std::pair<int, int>, double> known_;  // by stages and micro-batches
};

// Returns none for a job that cannot be computed, or not as it is.
std::optional<ComputedStep> step_of(const Layout& layout, const TrainConfig& given, const Settings& settings, int ranks,
                                    DrySteps& steps) {
  TrainConfig config = with_layout(given, layout);
  validate(config, settings_of(config, settings, steps.registry()));
  if (!has_dry_step(config) || config.train.shards > 0) return std::nullopt;
  return compute_step(config, ranks, steps);
}

// A layout that the settings or the model refuse is no mistake of the user.
LayoutPlan plan_of(const Layout& layout, const TrainConfig& given, const data::SampleLayout& samples, int ranks,
                   const plugin::Registry& registry, const Measure& measure, LayoutStep& step, Bubbles& bubbles) {
  LayoutPlan plan{.layout = layout, .step = {}, .reason = {}};
  const TrainConfig config = with_layout(given, layout);
  try {
    plan.step = plan_step(config, samples, ranks, registry, measure, step.get());
    plan.bubble = bubbles.of(config.parallel);
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    plan.reason = e.what();
  }
  return plan;
}

double mib(double bytes) {
  return bytes / (1 << 20);
}

bool copies_state(const std::vector<LayoutPlan>& plans) {
  return std::ranges::any_of(
      plans, [](const LayoutPlan& plan) { return plan.step && plan.step->use.copied + plan.step->use.kept > 0; });
}

std::string row(const LayoutPlan& plan, bool has_copies) {
  const std::string name = to_string(plan.layout);
  if (!plan.step) return fmt::format("{:<52} does not fit: {}", name, plan.reason);
  const auto& step = *plan.step;
  const std::string sent = step.sent ? fmt::format("{:.2f}", mib(static_cast<double>(*step.sent))) : "?";
  const std::string ms =
      step.time ? fmt::format("{:.2f}", std::chrono::duration<double, std::milli>(*step.time).count()) : "-";
  const std::string measured =
      step.time ? fmt::format("{}{}", step.measured_ranks, step.is_slice ? ", scaled" : "") : "-";
  return fmt::format("{:<52} {:>10.2f} {:>9.2f} {:>9.2f} {:>11.2f} {}{:>9} {:>6.0f} % {:>9} {:>8}", name,
                     mib(step.use.parameters), mib(step.use.gradients), mib(step.use.optimizer + step.use.averages),
                     mib(step.use.activations + step.use.gathered),
                     has_copies ? fmt::format("{:>9.2f} ", mib(step.use.copied + step.use.kept)) : "", sent,
                     100 * plan.bubble, ms, measured);
}

bool is_better(const LayoutPlan& a, const LayoutPlan& b) {
  const auto place = [](const LayoutPlan& plan) { return !plan.step ? 2 : plan.step->time ? 0 : 1; };
  if (place(a) != place(b) || !a.step) return place(a) < place(b);
  if (a.step->time && *a.step->time != *b.step->time) return *a.step->time < *b.step->time;
  return a.step->use.memory() < b.step->use.memory();
}

// Returns a line that says why layouts have no time, with the first reason.
std::vector<std::string> missing_times(const std::vector<LayoutPlan>& plans) {
  for (const auto& plan : plans)
    if (plan.step && !plan.step->time)
      return {fmt::format("-: not measured; {}: {}", to_string(plan.layout), plan.step->reason)};
  return {};
}

// Leaves out the other layouts of an axis that does not fit by itself. With a divided state the cause may be that.
class FittingAxes {
 public:
  bool may_fit(const Layout& layout) const {
    return std::ranges::none_of(axes_in_use(layout.ranks),
                                [&](const ModelAxis* axis) { return refused_.contains(of(*axis, layout)); });
  }
  void note(const LayoutPlan& plan) {
    const auto axes = axes_in_use(plan.layout.ranks);
    if (!plan.step && axes.size() == 1 && plan.layout.zero == 0) refused_.insert(of(*axes.front(), plan.layout));
  }

 private:
  static std::pair<std::string_view, int> of(const ModelAxis& axis, const Layout& layout) {
    return {axis.key, layout.ranks.on(axis.name())};
  }

  std::set<std::pair<std::string_view, int>> refused_;
};

}  // namespace

std::vector<std::string> layout_table(std::vector<LayoutPlan> plans) {
  std::ranges::stable_sort(plans, is_better);
  const bool has_copies = copies_state(plans);
  std::vector<std::string> lines{fmt::format(
      "{:<52} {:>10} {:>9} {:>9} {:>11} {}{:>9} {:>8} {:>9} {:>8}", "MiB of a rank, a step", "parameters", "gradients",
      "optimizer", "activations", has_copies ? fmt::format("{:>9} ", "copy") : "", "sent", "bubble", "ms", "measured")};
  for (const auto& plan : plans) lines.push_back(row(plan, has_copies));
  for (auto& line : missing_times(plans)) lines.push_back(std::move(line));
  return lines;
}

void plan_layouts(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry) {
  const auto datasets = make_datasets(config, settings, registry);
  auto layouts = layouts_of(config, ranks);
  std::vector<LayoutPlan> plans;
  std::map<std::string, MeasuredStep> measured;
  FittingAxes fitting;
  Bubbles bubbles;
  DrySteps dry_steps(datasets.train->layout(), registry);
  const auto add_plans = [&](std::size_t begin, std::size_t end) {
    auto steps = compute_all(
        end - begin, [&](std::size_t i) { return step_of(layouts[begin + i], config, settings, ranks, dry_steps); });
    for (std::size_t i = begin; i < end; ++i) {
      if (!fitting.may_fit(layouts[i])) continue;
      const auto measure = [&](const SmallJob& job) {
        const auto known = measured.find(key_of(job));
        if (known != measured.end()) return known->second;
        log::info("plan: layout {} of {}: {}", i + 1, layouts.size(), to_string(layouts[i]));
        return measured[key_of(job)] = measure_step(job.config, datasets, job.ranks, registry);
      };
      plans.push_back(
          plan_of(layouts[i], config, datasets.train->layout(), ranks, registry, measure, steps[i - begin], bubbles));
      fitting.note(plans.back());
    }
  };
  // Products of axes come last, and those of an axis that does not fit are not even computed.
  const auto first_product = std::ranges::find_if(layouts, is_product);
  const auto begin_of_products = static_cast<std::size_t>(first_product - layouts.begin());
  add_plans(0, begin_of_products);
  std::erase_if(layouts, [&](const Layout& layout) { return is_product(layout) && !fitting.may_fit(layout); });
  add_plans(begin_of_products, layouts.size());
  if (std::ranges::none_of(plans, [](const auto& plan) { return plan.step.has_value(); }))
    throw make_error(Errc::usage, "no layout of {} ranks fits: {}", ranks, plans.front().reason);
  std::string text;
  for (const auto& line : layout_table(std::move(plans))) text += line + "\n";
  write_standard_output(text);
}

}  // namespace ddprun::trainer
