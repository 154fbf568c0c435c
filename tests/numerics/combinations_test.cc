// Sets of settings that no row of refusals.cc excludes: three steps under one layout, two more under another one,
// beside one rank. A run takes some of the sets, by fixed seeds; with DDPRUN_DRAWS=all in the environment it takes all
// pairs and 200 sets of three.
#include "tests/numerics/combinations.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "common/error.h"
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int step_samples = 16, steps_before = 3, steps_in_all = 5;

bool draws_all() {
  const char* given = std::getenv("DDPRUN_DRAWS");
  return given && std::string(given) == "all";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from)) text.replace(at, from.size(), to);
  return text;
}

struct Outcome {
  std::vector<double> losses;
  double evaluation = 0;  // the loss of the model at the end
};

// A job with these features, under any layout.
class CombinedJob {
 public:
  CombinedJob(const TextFile& text, const Choices& features) : text_(text), features_(features) {}

  Outcome of_one_rank() const {
    const Choices none;
    const std::string passes = has_group(features_, "passes") ? "" : "accumulate = 8\n";
    return run(config(none, passes + steps(steps_in_all), false), 1);
  }
  // Returns why settings refuse the layout, or nothing.
  std::optional<std::string> refusal(const Choices& layout) const {
    try {
      const TrainingJob job(config(layout, steps(1), true));
    } catch (const Error& e) {
      return e.what();
    }
    return std::nullopt;
  }
  Outcome of_two_layouts(const Choices& first, const Choices& second) const {
    run(config(first, steps(steps_before), true), ranks_of(first));
    return run(config(second, steps(steps_in_all), true), ranks_of(second));
  }

 private:
  static std::string steps(int count) { return fmt::format("max_steps = {}\ncheck_replicas = true\n", count); }

  static int ranks_of(const Choices& layout) {
    int ranks = 1;
    for (const Choice& axis : layout) ranks *= axis.ranks;
    return ranks;
  }

  // Each rank's share of a step passes in micro-batches of two samples.
  static std::string lines_of_layout(const Choices& layout) {
    std::string lines;
    int sharing = 1;
    for (const Choice& axis : layout) {
      lines += axis.parallel;
      if (has_group({axis}, "data") || has_group({axis}, "experts")) sharing *= axis.ranks;
    }
    if (has_group(layout, "passes")) lines += fmt::format("micro_batches = {}\n", step_samples / sharing / 2);
    return lines;
  }

  // ranks: whether several train, who have a checkpoint.
  std::string config(const Choices& layout, const std::string& more, bool ranks) const {
    std::string model, train = fmt::format("global_batch_size = {}\n", step_samples) + more, optim, parallel;
    for (const Choice& feature : features_) {
      model += feature.model;
      train += feature.train;
      optim += feature.optim;
      if (ranks) parallel += feature.parallel;
    }
    if (has_group(layout, "tensor")) train += "check_placements = true\n";
    if (!has_group(features_, "optimizer")) optim += "name = sgd\nlr = 0.05\nmomentum = 0.9\n";
    const std::string folder = dir_.path().string();
    return text_.keys({.context = 16, .layers = 4, .heads = 8}) + model + "[train]\n" + train + "[optim]\n" +
           replaced(optim, "OFFLOAD", folder) + "[parallel]\n" + parallel + lines_of_layout(layout) +
           "[dist]\nbucket_mb = 0.02\n" + (has_group(features_, "schedule") ? "[eval]\nevery_steps = 1\n" : "") +
           "[metrics]\nfile = " + folder + "/metrics\n" +
           (ranks ? "[checkpoint]\ndir = " + folder + "/checkpoints\n" : "");
  }

  Outcome run(const std::string& text, int ranks) const {
    const auto summary = TrainingJob(text).run(ranks)[0];
    return {.losses = losses_in(dir_ / "metrics"), .evaluation = summary.evaluation.loss};
  }

  TempDir dir_;
  const TextFile& text_;
  const Choices& features_;
};

class Combinations {
 public:
  void check(const Choices& chosen) {
    INFO(names_of(chosen));
    // Those who train a model with experts have one under each layout.
    Choices features = features_of(chosen), layout = axes_of(chosen);
    if (has_group(layout, "experts")) features.push_back(feature("experts"));
    if (layout.empty()) layout.push_back(axis("data"));
    const CombinedJob job(text_, features);
    if (const auto reason = job.refusal(layout)) {
      INFO(*reason);
      // Layers move between ranks that have one stage each.
      const bool is_known = names_of(chosen).find("interleaved") != std::string::npos && has_group(chosen, "balance");
      CHECK((is_known || reason->find("it does not go with ") != std::string::npos));
      return;
    }
    try {
      const Choices second = another_layout(job, layout);
      INFO("then " << names_of(second));
      compare(outcome_of_one(features), job.of_two_layouts(layout, second), tolerance_of(chosen));
      ++trained_;
    } catch (const std::exception& e) {
      FAIL_CHECK(e.what());
    }
  }
  int trained() const { return trained_; }

 private:
  static Choice named(const Choices& all, const std::string& name) {
    return *std::ranges::find(all, name, &Choice::name);
  }
  static Choice axis(const std::string& name) { return named(axes(), name); }
  static Choice feature(const std::string& name) { return named(features(), name); }

  // Returns another layout with which the job goes together.
  static Choices another_layout(const CombinedJob& job, const Choices& layout) {
    const std::vector<Choices> all{{axis("zero 3")},
                                   {axis("data"), axis("tensor")},
                                   {axis("zero 1"), axis("pipeline 1f1b")},
                                   {axis("context"), axis("sequence")},
                                   {axis("zero 2")},
                                   {axis("data")}};
    const std::size_t begin = names_of(layout).size();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Choices& other = all[(begin + i) % all.size()];
      if (names_of(other) != names_of(layout) && !job.refusal(other)) return other;
    }
    throw std::runtime_error("no other layout goes with " + names_of(layout));
  }

  const Outcome& outcome_of_one(const Choices& features) {
    const auto [known, is_new] = of_one_.try_emplace(names_of(features));
    if (is_new) known->second = CombinedJob(text_, features).of_one_rank();
    return known->second;
  }

  static void compare(const Outcome& one, const Outcome& ranks, double tolerance) {
    CHECK(difference(one.losses, ranks.losses, steps_in_all) < tolerance);
    CHECK(difference({one.evaluation}, {ranks.evaluation}, 1) < tolerance);
  }

  const TextFile text_;
  std::map<std::string, Outcome> of_one_;  // by the names of features
  int trained_ = 0;
};

void check_all(const std::vector<Choices>& all) {
  Combinations combinations;
  for (const Choices& chosen : all) combinations.check(chosen);
  WARN(combinations.trained() << " of " << all.size() << " sets trained, the others are refused");
  CHECK(combinations.trained() > std::ssize(all) / 2);
}

}  // namespace

TEST_CASE("pairs of settings that are not refused train as one rank, and go on under another layout") {
  const auto all = combinations(2);
  check_all(draws_all() ? all : drawn(all, 40, 1));
}

TEST_CASE("sets of three settings that are not refused train as one rank, and go on under another layout") {
  check_all(drawn(combinations(3), draws_all() ? 200 : 20, 2));
}
