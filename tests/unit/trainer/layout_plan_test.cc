#include "worker/trainer/commands/layout_plan.h"

#include <algorithm>
#include <set>

#include "worker/trainer/commands/pipeline_bubble.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

TrainConfig with_experts() {
  TrainConfig config;
  config.model.experts.experts = 4;
  return config;
}

}  // namespace

TEST_CASE("the layouts of ranks are all their factorisations, those with replicas also with a divided state") {
  const auto eight = layouts_of(with_experts(), 8);
  std::set<std::string> names;
  for (const Layout& layout : eight) {
    CHECK(layout.data * ranks_of_replica(with_layout({}, layout).parallel.ranks) == 8);
    CHECK((layout.zero == 0 || layout.data * layout.ranks.on("context") * layout.ranks.on("expert") > 1));
    names.insert(to_string(layout));
  }
  CHECK(names.size() == eight.size());
  // 2 x 2 x 2 on five axes: 35 ways, of which 8 has no replicas: tensor x pipeline.
  constexpr int all = 35, without_replicas = 4;
  CHECK(eight.size() == all + 3 * (all - without_replicas));
  CHECK(names.contains("data 2 x tensor 2 x pipeline 2"));
  for (const std::string zero : {"1", "2", "3"}) CHECK(names.contains("data 2 x tensor 2 x pipeline 2, zero " + zero));
  CHECK(names.contains("data 2 x context 4"));
  CHECK(names.contains("data 1 x tensor 2 x pipeline 2 x context 2, zero 3"));
  CHECK(names.contains("data 2 x context 2 x expert 2, zero 2"));
  CHECK(names.contains("data 8, zero 3"));
  for (const Layout& layout : layouts_of({}, 8)) CHECK(layout.ranks.on("expert") == 1);
  CHECK(layouts_of(with_experts(), 1) == std::vector<Layout>{Layout{}});
}

TEST_CASE("in a product of axes few ranks exchange in every layer, and axes by themselves come first") {
  const auto many = layouts_of(with_experts(), 1024);
  bool in_products = false;
  for (const Layout& layout : many) {
    const int neighbours = layout.ranks.on("tensor") * layout.ranks.on("context") * layout.ranks.on("expert");
    if (is_product(layout)) CHECK(neighbours <= most_neighbours);
    CHECK_FALSE((in_products && !is_product(layout)));
    in_products = is_product(layout);
  }
  CHECK(std::ranges::count(many, Layout{.data = 1, .ranks = {{"tensor", 1024}}}) == 1);
}

TEST_CASE("every layout of a job trains the same samples in a step") {
  TrainConfig config = with_experts();
  config.train.batch_size = 6;
  config.parallel.zero = 2;
  for (const Layout& layout : layouts_of(config, 8)) {
    INFO(to_string(layout));
    const auto job = with_layout(config, layout);
    CHECK(batch_sizes(job.train, layout.data * layout.ranks.on("expert")).step == 48);
    CHECK(job.parallel.zero == layout.zero);
    CHECK(job.parallel.ranks == layout.ranks);
    CHECK((job.parallel.micro_batches > 0) == (layout.ranks.on("pipeline") > 1));
  }
  CHECK(with_layout(config, {.data = 4, .ranks = {{"pipeline", 2}}}).parallel.micro_batches == 8);
  CHECK(with_layout(config, {.data = 4, .ranks = {{"expert", 2}}}).train.global_batch_size == 48);
  CHECK(with_layout(config, {.data = 1, .ranks = {{"pipeline", 8}}}).parallel.micro_batches == 32);
  config.train.batch_size = 1;
  CHECK(with_layout(config, {.data = 4, .ranks = {{"pipeline", 2}}}).parallel.micro_batches == 2);
}

TEST_CASE("the bubble of a layout is that of its schedule") {
  TrainConfig::Parallel parallel;
  CHECK(bubble_of(parallel) == 0);
  parallel.ranks["pipeline"] = 4;
  parallel.micro_batches = 8;
  CHECK(bubble_of(parallel) == Approx(3.0 / 11));
}

TEST_CASE("layouts are listed by time, then those without one by memory, and those that do not fit come last") {
  const auto plan = [](Layout layout, std::optional<double> ms, double bytes) {
    LayoutPlan result{.layout = layout, .step = StepPlan{}, .reason = {}};
    if (ms) result.step->time = Seconds(*ms / 1000);
    result.step->measured_ranks = 2;
    result.step->is_slice = layout.ranks.on("tensor") > 2;
    result.step->reason = ms ? "" : "2 ranks would take 2.00 GiB, more than 75 % of the 1.00 GiB that are free here";
    result.step->use.parameters = bytes;
    return result;
  };
  const auto lines = layout_table({{.layout = {.ranks = {{"tensor", 8}}}, .step = {}, .reason = "4 heads"},
                                   plan({.ranks = {{"pipeline", 8}}}, {}, 300),
                                   plan({.ranks = {{"pipeline", 4}}}, {}, 200),
                                   plan({.data = 8}, 2, 200),
                                   plan({.data = 8, .zero = 1}, 2, 100),
                                   plan({.data = 2, .ranks = {{"tensor", 4}}}, 1, 900)});
  REQUIRE(lines.size() == 8);
  CHECK(lines[1].starts_with("data 2 x tensor 4 "));
  CHECK_THAT(lines[1], Catch::EndsWith("2, scaled"));
  CHECK(lines[2].starts_with("data 8, zero 1 "));
  CHECK(lines[3].starts_with("data 8 "));
  CHECK(lines[4].starts_with("data 1 x pipeline 4 "));
  CHECK_THAT(lines[4], Catch::EndsWith("         -        -"));
  CHECK(lines[5].starts_with("data 1 x pipeline 8 "));
  CHECK(lines[6] == "data 1 x tensor 8                                    does not fit: 4 heads");
  CHECK(
      lines[7] ==
      "-: not measured; data 1 x pipeline 4: 2 ranks would take 2.00 GiB, more than 75 % of the 1.00 GiB that are free "
      "here");
}
