#include "ddprun/worker/trainer/commands/layout_plan.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <sys/mman.h>
#include <thread>
#include <type_traits>

#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/common/rounding.h"
#include "ddprun/common/standard_output.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/comm/spawn.h"
#include "ddprun/worker/parallel/pipeline/simulation.h"
#include "ddprun/worker/trainer/config/group_settings.h"

namespace ddprun::trainer {
namespace {

// A value that forked ranks write and this process reads.
template <class T>
class SharedValue {
 public:
  SharedValue() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (memory_ == MAP_FAILED) throw Error(Errc::io, "plan: no memory to share with the ranks");
    new (memory_) T{};
  }
  ~SharedValue() { ::munmap(memory_, sizeof(T)); }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;
  T& operator*() { return *static_cast<T*>(memory_); }

 private:
  void* memory_;
};

int processors() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

StepPlan measure(const TrainConfig& config, const Datasets& datasets, int ranks, const plugin::Registry& registry) {
  SharedValue<StepPlan> result;
  spawn(measured_ranks(config, ranks), [&](const WorkerEnv& place) {
    const auto world = init_process_group(init_options(config, place));
    const auto measured = measure_plan(config, datasets, world->group(), ranks, registry);
    if (place.rank == 0) *result = measured;
  });
  return *result;
}

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

// Returns an empty text if as many processes as share a model can compute at once.
std::string why_not_tried(const TrainConfig& config, int ranks) {
  const int needed = measured_ranks(config, ranks);
  if (needed <= std::max(2, processors())) return {};
  return fmt::format("{} ranks share a model, and this machine has {} processor{}", needed, processors(),
                     processors() == 1 ? "" : "s");
}

// A layout that the settings or the model refuse is no mistake of the user. announce: called before it is measured.
LayoutPlan plan_of(const Layout& layout, const TrainConfig& given, const Settings& settings, const Datasets& datasets,
                   int ranks, const plugin::Registry& registry, const std::function<void()>& announce) {
  LayoutPlan plan{.layout = layout, .step = {}, .reason = {}};
  TrainConfig config = with_layout(given, layout);
  try {
    validate(config, settings_of(config, settings, registry));
    plan.bubble = bubble_of(config.parallel);
    plan.reason = why_not_tried(config, ranks);
    plan.is_tried = plan.reason.empty();
    if (!plan.is_tried) return plan;
    announce();
    plan.step = measure(config, datasets, ranks, registry);
    // If stages share processors, one computes while another waits.
    if (plan.step->measured_ranks > processors()) plan.step->time /= 1 - plan.bubble;
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    plan.reason = e.what();
  }
  return plan;
}

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

std::size_t memory_of_rank(const StepPlan& step) {
  return step.memory.parameters + step.memory.gradients + step.memory.optimizer + step.memory.activations;
}

std::string row(const LayoutPlan& plan) {
  const std::string name = to_string(plan.layout);
  if (!plan.step) return fmt::format("{:<40} {}: {}", name, plan.is_tried ? "does not fit" : "not tried", plan.reason);
  const auto& step = *plan.step;
  const double ms = std::chrono::duration<double, std::milli>(step.time).count();
  const std::string sent = step.sent ? fmt::format("{:.2f}", mib(*step.sent)) : "?";
  return fmt::format("{:<40} {:>10.2f} {:>9.2f} {:>9.2f} {:>11.2f} {:>9} {:>6.0f} % {:>9.2f} {:>8}", name,
                     mib(step.memory.parameters), mib(step.memory.gradients), mib(step.memory.optimizer),
                     mib(step.memory.activations), sent, 100 * plan.bubble, ms, step.measured_ranks);
}

bool is_better(const LayoutPlan& a, const LayoutPlan& b) {
  const auto place = [](const LayoutPlan& plan) { return plan.step ? 0 : plan.is_tried ? 2 : 1; };
  if (!a.step || !b.step) return place(a) < place(b);
  if (a.step->time != b.step->time) return a.step->time < b.step->time;
  return memory_of_rank(*a.step) < memory_of_rank(*b.step);
}

}  // namespace

std::string to_string(const Layout& layout) {
  std::string text = fmt::format("data {}", layout.data);
  if (layout.tensor > 1) text += fmt::format(" x tensor {}", layout.tensor);
  if (layout.pipeline > 1) text += fmt::format(" x pipeline {}", layout.pipeline);
  if (layout.context > 1) text += fmt::format(" x context {}", layout.context);
  if (layout.expert > 1) text += fmt::format(" x expert {}", layout.expert);
  if (layout.zero > 0) text += fmt::format(", zero {}", layout.zero);
  return text;
}

std::vector<Layout> layouts_of(int ranks, bool has_experts) {
  std::vector<Layout> all;
  for (int tensor = 1; tensor <= ranks; ++tensor)
    for (int pipeline = 1; tensor * pipeline <= ranks; ++pipeline)
      if (ranks % (tensor * pipeline) == 0) all.push_back({ranks / (tensor * pipeline), tensor, pipeline});
  for (int context = 2; context <= ranks; ++context)
    if (ranks % context == 0) all.push_back({.data = ranks / context, .context = context});
  for (int expert = 2; has_experts && expert <= ranks; ++expert)
    if (ranks % expert == 0) all.push_back({.data = ranks / expert, .expert = expert});
  for (std::int64_t zero = 1; zero <= 3 && ranks > 1; ++zero) all.push_back({.data = ranks, .zero = zero});
  for (std::size_t i = 0, meshes = all.size(); i < meshes; ++i) {
    Layout layout = all[i];
    if (layout.data == 1 || layout.tensor * layout.pipeline == 1) continue;
    const std::int64_t most = layout.pipeline > 1 ? 1 : 3;
    for (layout.zero = 1; layout.zero <= most; ++layout.zero) all.push_back(layout);
  }
  return all;
}

TrainConfig with_layout(const TrainConfig& config, const Layout& layout) {
  constexpr std::int64_t micro_batches_of_stage = 4;
  TrainConfig result = config;
  auto& p = result.parallel;
  p.tensor = layout.tensor;
  p.pipeline = layout.pipeline;
  p.context = layout.context;
  p.expert = layout.expert;
  p.zero = layout.zero;
  if (p.zero < 2) p.shard_group = 0;
  const int ranks = layout.data * layout.tensor * layout.pipeline * layout.context * layout.expert;
  const std::int64_t step = batch_sizes(config.train, ranks).step;
  const int shares = layout.data * layout.expert;
  const std::int64_t samples = divide_up<std::int64_t>(step, shares);
  result.train.global_batch_size = step;
  result.train.batch_size = 0;
  if (p.pipeline > 1) result.train.accumulate = 1;  // micro-batches replace it
  if (p.pipeline == 1)
    p.micro_batches = 0;
  else if (p.micro_batches == 0)
    p.micro_batches = static_cast<int>(std::min(samples, micro_batches_of_stage * p.pipeline));
  return result;
}

double bubble_of(const TrainConfig::Parallel& parallel) {
  if (parallel.pipeline == 1) return 0;
  return simulate(pipeline::plan_schedule(pipeline::parse_schedule(parallel.schedule),
                                          {.ranks = parallel.pipeline,
                                           .micro_batches = parallel.micro_batches,
                                           .virtual_stages = parallel.virtual_stages}))
      .bubble();
}

std::vector<std::string> layout_table(std::vector<LayoutPlan> plans) {
  std::ranges::stable_sort(plans, is_better);
  std::vector<std::string> lines{fmt::format("{:<40} {:>10} {:>9} {:>9} {:>11} {:>9} {:>8} {:>9} {:>8}",
                                             "MiB of a rank, a step", "parameters", "gradients", "optimizer",
                                             "activations", "sent", "bubble", "ms", "measured")};
  for (const auto& plan : plans) lines.push_back(row(plan));
  return lines;
}

void plan_layouts(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry) {
  const auto datasets = make_datasets(config, settings, registry);
  const auto layouts = layouts_of(ranks, config.model.experts > 0);
  std::vector<LayoutPlan> plans;
  for (const Layout& layout : layouts) {
    const auto announce = [&] {
      log::info("plan: layout {} of {}: {}", plans.size() + 1, layouts.size(), to_string(layout));
    };
    plans.push_back(plan_of(layout, config, settings, datasets, ranks, registry, announce));
  }
  if (std::ranges::none_of(plans, [](const auto& plan) { return plan.step.has_value(); }))
    throw make_error(Errc::usage, "no layout of {} ranks fits: {}", ranks, plans.front().reason);
  std::string text;
  for (const auto& line : layout_table(std::move(plans))) text += line + "\n";
  write_standard_output(text);
}

}  // namespace ddprun::trainer
