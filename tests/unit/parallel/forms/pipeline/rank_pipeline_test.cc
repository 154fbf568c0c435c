#include "worker/parallel/forms/pipeline/rank_pipeline.h"

#include <array>
#include <mutex>

#include "common/error.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/pipeline/pipelined_data_parallel.h"
#include "worker/parallel/mesh/device_mesh.h"
#include "worker/parallel/sharding/sharded_state.h"
#include "tests/support/run_ranks.h"
#include "tests/unit/parallel/forms/pipeline/pipeline_model.h"

using namespace ddprun;
using namespace ddprun::pipeline;
using namespace ddprun::testing;

namespace {

struct Plan {
  TestModel model;
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  int pipeline = 2, data = 2, virtual_stages = 1, micro_batches = 2;  // micro_batches: those of each data rank
  std::vector<std::string> split;
};

sharding::ShardedState state_of(const RankPipeline& pipeline, const optim::NamedTensors& own) {
  ProcessGroup& group = pipeline.group();
  return {sharding::placed_tensors(pipeline.placements(), own, &group), own, group};
}

// Gradients of data ranks are averaged; the whole model adds up all micro-batches.
Learnt learn(const Plan& plan, ProcessGroup& world) {
  const DeviceMesh mesh(world, {{"pipeline", plan.pipeline}, {"data", plan.data}});
  const auto model = make(plan.model);
  const Schedule schedule = plan_schedule(plan.kind, {plan.pipeline, plan.micro_batches, plan.virtual_stages});
  RankPipeline pipeline(*model, cuts_at(*model, plan.split, static_cast<std::size_t>(schedule.stages)), schedule,
                        mesh.group("pipeline"));
  DistributedDataParallel ddp(*model, mesh.group("data"), {.stages = pipeline.tensors_of(pipeline.group().rank())});
  const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1 * plan.data}, pipeline.parameters());
  const int first = mesh.coordinate("data") * plan.micro_batches;
  Learnt learnt;
  for (int s = 0; s < steps; ++s) {
    ddp.zero_grad();
    auto step = step_functions(plan.model, s, plan.micro_batches, learnt.losses);
    step.input = [&, s](int m) { return Variable(input_of(plan.model, s, first + m)); };
    step.scope = [s, first](int m) { return keys_of(s, first + m); };
    pipeline.train(step, ddp);
    optimizer->step();
  }
  optim::NamedTensors own;
  for (const auto& [name, parameter] : pipeline.parameters()) own.emplace_back(name, parameter.value());
  for (const auto& [name, tensor] : state_of(pipeline, own).gather()) learnt.parameters[name] = test::values(tensor);
  return learnt;
}

void check(const Plan& plan) {
  const Learnt expected = learn_whole(plan.model, plan.micro_batches * plan.data);
  std::mutex mutex;
  std::map<std::string, std::vector<double>> found;
  run_ranks(plan.pipeline * plan.data, [&](ProcessGroup& world) {
    const Learnt own = learn(plan, world);
    const std::lock_guard lock(mutex);
    for (const auto& [name, values] : own.parameters)
      require(found.try_emplace(name, values).first->second == values, name + " differs between data ranks");
  });
  REQUIRE(found.size() == expected.parameters.size());
  for (const auto& [name, values] : expected.parameters) require_near(found.at(name), values, 1e-5, name);
}

}  // namespace

TEST_CASE("pipelines of several data ranks learn what the whole model learns from all samples") {
  for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble})
    check({.model = {"gpt", 0.2}, .kind = kind, .split = {"h.3"}});
  check({.model = {"gpt"}, .kind = ScheduleKind::interleaved, .virtual_stages = 2, .split = {"h.1", "h.3", "h.5"}});
  check({.model = {"mlp"}, .data = 1, .micro_batches = 4, .split = {"fc3"}});
}

TEST_CASE("a model that is cut elsewhere between two steps learns what the whole model learns") {
  const TestModel which{"gpt", 0.2};
  const std::vector<std::string> first_pieces{"h.3", "lm_head", "h.1"};
  const Learnt expected = learn_whole(which, 4);
  std::mutex mutex;
  std::map<std::string, std::vector<double>> found;
  run_ranks(4, [&](ProcessGroup& world) {
    const DeviceMesh mesh(world, {{"pipeline", 2}, {"data", 2}});
    const auto model = make(which);
    const auto cuts = [&](int s) { return cuts_at(*model, {first_pieces[static_cast<std::size_t>(s)]}, 2); };
    PipelinedDataParallel pipelined(*model, mesh.group("pipeline"), mesh.group("data"), cuts(0),
                                    plan_schedule(ScheduleKind::one_forward_one_backward, {2, 2, 1}));
    std::vector<double> losses;
    for (int s = 0; s < steps; ++s) {
      if (s > 0) pipelined.cut_at(cuts(s));
      for (const auto& name : pipelined.pipeline().names_of_other_stages())
        require(!model->parameter(name).value().storage()->is_present(), name + " has memory at another rank");
      const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.2}, pipelined.pipeline().parameters());
      const int first = mesh.coordinate("data") * 2;
      pipelined.zero_grad();
      auto step = step_functions(which, s, 2, losses);
      step.input = [&](int m) { return Variable(input_of(which, s, first + m)); };
      step.scope = [&](int m) { return keys_of(s, first + m); };
      pipelined.train(step);
      optimizer->step();
    }
    const std::lock_guard lock(mutex);
    for (const auto& [name, parameter] : pipelined.pipeline().parameters())
      require(found.try_emplace(name, test::values(parameter.value())).first->second == test::values(parameter.value()),
              name + " differs between ranks");
  });
  REQUIRE(found.size() == expected.parameters.size());
  for (const auto& [name, values] : expected.parameters) require_near(found.at(name), values, 1e-5, name);
}

TEST_CASE("an operation that uses a parameter of another rank is refused") {
  std::string error;
  run_ranks(2, [&](ProcessGroup& group) {
    const auto model = make({"mlp"});
    const Schedule schedule = plan_schedule(ScheduleKind::gpipe, {2, 2, 1});
    const RankPipeline pipeline(*model, cuts_at(*model, {"fc3"}, 2), schedule, group);
    try {
      (*model)(Variable(input_of({"mlp"}, 0, 0)));
    } catch (const Error& e) {
      if (group.rank() == 0) error = e.what();
    }
  });
  CHECK_THAT(error, Catch::Contains("fc3") && Catch::Contains("absent"));
}

// Muon keeps other tensors of matrices than of other parameters.
TEST_CASE("the state of an optimizer is gathered and scattered by stages") {
  const char* const name_of_optimizer = GENERATE("adam", "muon");
  CAPTURE(name_of_optimizer);
  std::map<std::string, std::vector<double>> gathered, expected;
  std::array<bool, 2> restored{};
  run_ranks(2, [&](ProcessGroup& group) {
    const auto model = make({"gpt"});
    const Schedule schedule = plan_schedule(ScheduleKind::gpipe, {2, 2, 1});
    const RankPipeline pipeline(*model, cuts_at(*model, {"h.3"}, 2), schedule, group);
    const auto optimizer = optim::make_optimizer(name_of_optimizer, {}, pipeline.parameters());
    double number = 0;
    for (auto [name, tensor] : optimizer->state()) tensor.fill(++number + 1000 * group.rank());
    const auto state = state_of(pipeline, optimizer->state());
    const auto whole = state.gather();
    for (auto [name, tensor] : optimizer->state()) tensor.fill(-1);
    // The first rank passes memory that is part of the whole, which is allowed.
    if (group.rank() == 0)
      for (auto [name, tensor] : whole)
        if (tensor.to(DType::float64).reshape({-1}).slice(0, 0, 1).item() == -1) tensor.fill(7);
    state.scatter(whole);
    bool all = true;
    number = 0;
    for (const auto& [name, tensor] : optimizer->state()) {
      ++number;
      const double value = test::values(tensor)[0];
      const bool is_tied = name.starts_with("wte.weight");
      all = all && value == (group.rank() == 0 || is_tied ? 7 : number + 1000);
    }
    restored[static_cast<std::size_t>(group.rank())] = all;
    if (group.rank() != 0) return;
    for (const auto& [name, tensor] : whole) gathered[name] = test::values(tensor);
    const auto complete = make({"gpt"});
    const auto complete_optimizer = optim::make_optimizer(name_of_optimizer, {}, complete->named_parameters());
    for (const auto& [name, tensor] : complete_optimizer->state()) expected[name] = test::values(tensor);
  });
  REQUIRE(gathered.size() == expected.size());
  for (const auto& [name, values] : expected) CHECK(gathered.at(name).size() == values.size());
  CHECK(gathered.at("ln_f.bias.exp_avg")[0] > 1000);
  CHECK(restored[0]);
  CHECK(restored[1]);
}

TEST_CASE("a stage that learns nothing is refused") {
  CHECK_THROWS_WITH(run_ranks(2,
                              [&](ProcessGroup& group) {
                                const auto model = make({"mlp"});
                                const Schedule schedule = plan_schedule(ScheduleKind::gpipe, {2, 2, 1});
                                const RankPipeline pipeline(*model, cuts_at(*model, {"fc1"}, 2), schedule, group);
                              }),
                    Catch::Contains("stage 0 of the pipeline, from flatten on, has no parameter"));
}

TEST_CASE("the whole model is seen by all ranks, of which each has its stages alone") {
  const auto whole = make({"gpt"});
  std::map<std::string, std::vector<double>> expected;
  for (const auto& [name, parameter] : whole->named_parameters()) expected[name] = test::values(parameter.value());
  std::mutex mutex;
  int seen = 0, dropped = 0;
  run_ranks(4, [&](ProcessGroup& world) {
    const DeviceMesh mesh(world, {{"pipeline", 2}, {"data", 2}});
    const auto model = make({"gpt"});
    PipelinedDataParallel pipelined(*model, mesh.group("pipeline"), mesh.group("data"), cuts_at(*model, {"h.3"}, 2),
                                    plan_schedule(ScheduleKind::gpipe, {2, 2, 1}));
    bool all = true;
    std::size_t count = 0;
    pipelined.visit_parameters([&](const std::string& name, const Tensor& value) {
      all = all && test::values(value) == expected.at(name);
      ++count;
    });
    const bool sees = all && count == expected.size();
    bool drops = true;
    for (const auto& name : pipelined.pipeline().names_of_other_stages())
      drops = drops && !model->parameter(name).value().storage()->is_present();
    const std::lock_guard lock(mutex);
    seen += sees;
    dropped += drops;
  });
  CHECK(seen == 4);
  CHECK(dropped == 4);
}
