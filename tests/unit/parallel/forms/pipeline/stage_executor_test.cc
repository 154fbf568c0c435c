#include "worker/parallel/forms/pipeline/stage_executor.h"

#include <mutex>
#include <set>

#include "common/error.h"
#include "worker/nn/layers.h"
#include "worker/parallel/forms/pipeline/group_channel.h"
#include "worker/parallel/forms/pipeline/tied_parameters.h"
#include "tests/support/run_ranks.h"
#include "tests/unit/parallel/forms/pipeline/pipeline_model.h"

using namespace ddprun;
using namespace ddprun::pipeline;
using namespace ddprun::testing;

namespace {

std::vector<std::size_t> even_cuts(nn::Module& model, int stages) {
  const std::size_t pieces = model.pieces().size(), count = static_cast<std::size_t>(stages);
  std::vector<std::size_t> cuts;
  for (std::size_t s = 1; s < count; ++s) cuts.push_back(s * pieces / count);
  return cuts;
}

std::vector<Stage> own_stages(std::vector<Stage> all, const Schedule& schedule, int rank) {
  std::erase_if(all, [&](const Stage& stage) { return schedule.rank_of(stage.number) != rank; });
  return all;
}

struct Plan {
  TestModel model;
  ScheduleKind kind;
  int ranks = 2, micro_batches = 4, virtual_stages = 1;
};

Schedule schedule_of(const Plan& plan) {
  return plan_schedule(plan.kind, {plan.ranks, plan.micro_batches, plan.virtual_stages});
}

// Returns what a rank learns of its stages.
Learnt learn_stages(const Plan& plan, ProcessGroup& group) {
  const auto model = make(plan.model);
  const Schedule schedule = schedule_of(plan);
  const auto stages = make_stages(*model, even_cuts(*model, schedule.stages));
  const TiedParameters tied(stages, schedule, group);
  const auto own = own_stages(stages, schedule, group.rank());
  const auto parameters = parameters_of(own);
  GroupChannel channel(group);
  StageExecutor executor(schedule, group.rank(), own, channel);
  const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, parameters);
  Learnt learnt;
  for (int s = 0; s < steps; ++s) {
    model->zero_grad();
    executor.train(step_functions(plan.model, s, plan.micro_batches, learnt.losses));
    tied.sum_gradients(nullptr);
    optimizer->step();
  }
  record_parameters(parameters, learnt);
  return learnt;
}

void check_learns_as_whole(const Plan& plan) {
  const Learnt expected = learn_whole(plan.model, plan.micro_batches);
  std::mutex mutex;
  std::map<std::string, std::vector<double>> found;
  std::vector<double> losses;
  run_ranks(plan.ranks, [&](ProcessGroup& group) {
    const Learnt own = learn_stages(plan, group);
    const std::lock_guard lock(mutex);
    if (group.rank() == plan.ranks - 1) losses = own.losses;
    for (const auto& [name, values] : own.parameters)
      require(found.try_emplace(name, values).first->second == values, name + " differs between its ranks");
  });
  require_near(losses, expected.losses, 1e-6, "loss");
  REQUIRE(found.size() == expected.parameters.size());
  for (const auto& [name, values] : found) require_near(values, expected.parameters.at(name), 1e-5, name);
}

}  // namespace

TEST_CASE("stages on several ranks learn what the whole model learns") {
  for (const TestModel& model :
       {TestModel{"mlp"}, TestModel{"mlp", 0.3}, TestModel{"cnn"}, TestModel{"gpt"}, TestModel{"gpt", 0.2}})
    for (const int ranks : {1, 2, 4}) {
      check_learns_as_whole({model, ScheduleKind::gpipe, ranks});
      check_learns_as_whole({model, ScheduleKind::one_forward_one_backward, ranks});
      check_learns_as_whole({model, ScheduleKind::zero_bubble, ranks});
      check_learns_as_whole({model, ScheduleKind::interleaved, ranks, 4, 2});
    }
}

TEST_CASE("any number of micro-batches passes through") {
  for (const int micro_batches : {1, 3, 5}) {
    check_learns_as_whole({{"mlp"}, ScheduleKind::one_forward_one_backward, 3, micro_batches});
    check_learns_as_whole({{"mlp"}, ScheduleKind::interleaved, 2, micro_batches, 3});
  }
}

TEST_CASE("under autocast stages compute what the whole model computes") {
  const Plan plan{{"gpt"}, ScheduleKind::one_forward_one_backward, 2};
  const autograd::AutocastScope precision(DType::bfloat16);
  const Learnt expected = learn_whole(plan.model, plan.micro_batches);
  std::vector<double> losses;
  run_ranks(2, [&](ProcessGroup& group) {
    const autograd::AutocastScope own(DType::bfloat16);
    const Learnt learnt = learn_stages(plan, group);
    if (group.rank() == 1) losses = learnt.losses;
  });
  require_near(losses, expected.losses, 1e-2, "loss");
  CHECK(losses[0] == expected.losses[0]);
}

TEST_CASE("a model is evaluated by stages") {
  const TestModel which{"gpt"};
  const auto whole = make(which);
  std::vector<double> expected, found;
  for (int m = 0; m < 5; ++m) expected.push_back(loss_of((*whole)(Variable(input_of(which, 0, m)))).value().item());
  run_ranks(2, [&](ProcessGroup& group) {
    const auto model = make(which);
    const Schedule schedule = plan_schedule(ScheduleKind::interleaved, {2, 2, 2});
    GroupChannel channel(group);
    StageExecutor executor(schedule, group.rank(),
                           own_stages(make_stages(*model, even_cuts(*model, 4)), schedule, group.rank()), channel);
    std::vector<double> losses;
    for (int m = 0; m < 5; ++m) executor.evaluate(m, step_functions(which, 0, 5, losses));
    channel.finish();
    if (group.rank() == 1) found = losses;
  });
  CHECK(found == expected);
}

TEST_CASE("a shape that changes is an error that names stage, micro-batch and rank") {
  CHECK_THROWS_WITH(run_ranks(2,
                              [&](ProcessGroup& group) {
                                const TestModel which{"mlp"};
                                const auto model = make(which);
                                const Schedule schedule = plan_schedule(ScheduleKind::gpipe, {2, 2, 1});
                                GroupChannel channel(group);
                                StageExecutor executor(
                                    schedule, group.rank(),
                                    own_stages(make_stages(*model, even_cuts(*model, 2)), schedule, group.rank()),
                                    channel);
                                std::vector<double> losses;
                                auto functions = step_functions(which, 0, 2, losses);
                                functions.scope = {};
                                functions.input = [](int m) { return Variable(test::random_tensor({3 + m, 7}, 1)); };
                                executor.train(functions);
                              }),
                    Catch::Contains("pipeline rank 0, forward of micro-batch 1 at stage 0") &&
                        Catch::Contains("stage 0 gave a float32 tensor of shape [4"));
}

TEST_CASE("a neighbour that ends is an error at the ranks that wait for it") {
  std::string error;
  try {
    run_ranks(2, [&](ProcessGroup& group) {
      if (group.rank() == 0) return;
      learn_stages({{"mlp"}, ScheduleKind::one_forward_one_backward, 2}, group);
    });
  } catch (const Error& e) {
    error = e.what();
  }
  CHECK_THAT(error,
             Catch::Contains("pipeline rank 1, forward of micro-batch 0 at stage 1") && Catch::Contains("rank 0"));
}
