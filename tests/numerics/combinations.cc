#include "tests/numerics/combinations.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <utility>

namespace ddprun::testing {
namespace {

// Numbers in 16 bits, and gradients that a hook rounds, differ from those of one rank by rounding.
constexpr double of_16_bits = 2e-2, of_rounded_gradients = 5e-2;

Choice data_axis(const std::string& name, int ranks, const std::string& parallel) {
  return {.name = name, .groups = {"data"}, .ranks = ranks, .parallel = parallel};
}

Choice schedule(const std::string& name, const std::string& more = "") {
  return {.name = "pipeline " + name,
          .groups = {"passes"},
          .ranks = 2,
          .parallel = "pipeline = 2\nschedule = " + name + "\n" + more};
}

Choice hook(const std::string& lines) {
  return {.name = "hook " + lines.substr(0, lines.find('\n')),
          .groups = {"hook"},
          .parallel = "hook = " + lines + "\n",
          .tolerance = of_rounded_gradients};
}

// 1-bit Adam is an optimizer as well.
Choice one_bit() {
  Choice choice = hook("onebit\nfreeze_step = 3");
  choice.groups.emplace_back("optimizer");
  choice.optim = "name = adamw\nlr = 1e-3\n";
  return choice;
}

Choice optimizer(const std::string& lines, const std::string& name = "") {
  return {.name = name.empty() ? lines.substr(0, lines.find('\n')) : name,
          .groups = {"optimizer"},
          .optim = "name = " + lines + "\ndecay_one_dimensional = false\n"};
}

bool goes_with(const Choice& choice, const Choices& chosen) {
  return std::ranges::none_of(choice.groups, [&](const auto& group) { return has_group(chosen, group); });
}

Choices chosen_if(const Choices& chosen, bool (*holds)(const Choice&)) {
  Choices found;
  std::ranges::copy_if(chosen, std::back_inserter(found), holds);
  return found;
}

// Features multiply the ranks of a job by one.
bool is_feature(const Choice& choice) {
  return choice.ranks == 1;
}

}  // namespace

const Choices& axes() {
  static const Choices all{
      data_axis("data", 2, ""),
      data_axis("zero 1", 2, "zero = 1\n"),
      data_axis("zero 2", 2, "zero = 2\n"),
      data_axis("zero 3", 2, "zero = 3\n"),
      data_axis("zero 3 in groups", 4, "zero = 3\nshard_group = 2\n"),
      data_axis("zero 3 without resharding", 2, "zero = 3\nreshard_after_forward = false\n"),
      {.name = "tensor", .groups = {"tensor"}, .ranks = 2, .parallel = "tensor = 2\n"},
      {.name = "sequence", .groups = {"tensor"}, .ranks = 2, .parallel = "tensor = 2\nsequence = true\n"},
      {.name = "context", .groups = {"context"}, .ranks = 2, .parallel = "context = 2\n"},
      // The feature "experts" gives the model what this axis divides.
      {.name = "expert", .groups = {"experts"}, .ranks = 2, .parallel = "expert = 2\n"},
      schedule("gpipe"),
      schedule("1f1b"),
      schedule("interleaved", "virtual_stages = 2\n"),
      schedule("zero_bubble"),
  };
  return all;
}

const Choices& features() {
  static const Choices all{
      {.name = "experts", .groups = {"experts"}, .model = "experts = 4\nload_balancing_loss = 0\n"},
      {.name = "accumulate", .groups = {"passes"}, .train = "accumulate = 2\n"},
      {.name = "recompute", .groups = {"recompute"}, .train = "recompute = blocks\n"},
      {.name = "dropout", .groups = {"dropout"}, .model = "dropout = 0.1\n"},
      {.name = "bf16", .groups = {"precision"}, .train = "precision = bf16\n", .tolerance = of_16_bits},
      {.name = "fp16",
       .groups = {"precision"},
       .train = "precision = fp16\nloss_scale = 1024\n",
       .tolerance = of_16_bits},
      {.name = "ema", .groups = {"ema"}, .train = "ema = 0.9\n"},
      {.name = "quantization aware",
       .groups = {"quantization"},
       .train = "quantization_aware = true\n",
       .tolerance = of_16_bits},
      {.name = "clip_norm", .groups = {"clipping"}, .optim = "clip_norm = 0.5\n"},
      {.name = "clip_value", .groups = {"clipping"}, .optim = "clip_value = 0.001\n"},
      {.name = "skip_outliers", .groups = {"outliers"}, .optim = "skip_outliers = 10\n"},
      {.name = "plateau",
       .groups = {"schedule"},
       .optim = "schedule = plateau\nfactor = 0.5\npatience = 0\nthreshold = 0.9\n"},
      optimizer("adamw\nlr = 1e-3\nweight_decay = 0.1"),
      optimizer("lamb\nlr = 1e-2\nweight_decay = 0.01"),
      optimizer("lars\nlr = 1\nmomentum = 0.9\nweight_decay = 0.01"),
      optimizer("muon\nlr = 1e-2\nmomentum = 0.9\nweight_decay = 0.01"),
      optimizer("adamw\nlr = 1e-3\nweight_decay = 0.1\noffload = OFFLOAD", "offload"),
      hook("fp16"),
      hook("bf16"),
      hook("int8"),
      hook("int4"),
      hook("topk\ntopk_fraction = 0.5"),
      hook("powersgd\nstart_powerSGD_iter = 2\nmatrix_approximation_rank = 16"),
      one_bit(),
      {.name = "balance", .groups = {"balance"}, .parallel = "balance = true\n"},
      {.name = "find_unused_parameters", .groups = {"use"}, .parallel = "find_unused_parameters = true\n"},
      {.name = "static_graph", .groups = {"use"}, .parallel = "static_graph = true\n"},
  };
  return all;
}

std::vector<Choices> combinations(std::size_t size) {
  Choices each = axes();
  each.insert(each.end(), features().begin(), features().end());
  std::vector<Choices> all;
  const std::function<void(std::size_t, const Choices&)> extend = [&](std::size_t first, const Choices& chosen) {
    if (chosen.size() == size) return all.push_back(chosen);
    for (std::size_t i = first; i < each.size(); ++i) {
      if (!goes_with(each[i], chosen)) continue;
      Choices more = chosen;
      more.push_back(each[i]);
      extend(i + 1, more);
    }
  };
  extend(0, {});
  return all;
}

std::vector<Choices> drawn(std::vector<Choices> all, std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  count = std::min(count, all.size());
  for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + generator() % (all.size() - i)]);
  all.resize(count);
  return all;
}

Choices axes_of(const Choices& chosen) {
  return chosen_if(chosen, [](const Choice& choice) { return !is_feature(choice); });
}

Choices features_of(const Choices& chosen) {
  return chosen_if(chosen, is_feature);
}

bool has_group(const Choices& chosen, const std::string& group) {
  return std::ranges::any_of(chosen, [&](const Choice& each) { return std::ranges::count(each.groups, group) > 0; });
}

std::string names_of(const Choices& chosen) {
  std::string text;
  for (const Choice& choice : chosen) text += (text.empty() ? "" : " x ") + choice.name;
  return text;
}

double tolerance_of(const Choices& chosen) {
  return std::ranges::max(chosen, {}, &Choice::tolerance).tolerance;
}

}  // namespace ddprun::testing
