#include "worker/parallel/forms/pipeline/device_pipeline.h"

#include "common/error.h"
#include "tests/unit/parallel/forms/pipeline/pipeline_model.h"

using namespace ddprun;
using namespace ddprun::pipeline;
using namespace ddprun::testing;

namespace {

struct Plan {
  TestModel model;
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  int devices = 2, virtual_stages = 1, micro_batches = 4;
};

std::vector<std::size_t> even_cuts(nn::Module& model, int stages) {
  const std::size_t pieces = model.pieces().size(), count = static_cast<std::size_t>(stages);
  std::vector<std::size_t> cuts;
  for (std::size_t s = 1; s < count; ++s) cuts.push_back(s * pieces / count);
  return cuts;
}

std::unique_ptr<DevicePipeline> make_pipeline(const Plan& plan, nn::Module& model) {
  std::vector<Device> devices;
  for (int d = 0; d < plan.devices; ++d) devices.push_back(parse_device("cpu:" + std::to_string(d)));
  return std::make_unique<DevicePipeline>(
      model, [&plan] { return make(plan.model); }, devices,
      plan_schedule(plan.kind, {plan.devices, plan.micro_batches, plan.virtual_stages}),
      even_cuts(model, plan.devices * plan.virtual_stages));
}

Learnt learn_on_devices(const Plan& plan) {
  const auto model = make(plan.model);
  const auto pipeline = make_pipeline(plan, *model);
  const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, model->named_parameters());
  Learnt learnt;
  for (int s = 0; s < steps; ++s) {
    model->zero_grad();
    pipeline->train(step_functions(plan.model, s, plan.micro_batches, learnt.losses));
    optimizer->step();
  }
  record_parameters(model->named_parameters(), learnt);
  return learnt;
}

}  // namespace

TEST_CASE("stages on the devices of a process learn what the whole model learns") {
  for (const TestModel& model : {TestModel{"mlp", 0.3}, TestModel{"gpt"}, TestModel{"gpt", 0.2}})
    for (const auto& [kind, virtual_stages] :
         {std::pair(ScheduleKind::gpipe, 1), std::pair(ScheduleKind::one_forward_one_backward, 1),
          std::pair(ScheduleKind::interleaved, 2), std::pair(ScheduleKind::zero_bubble, 1)})
      for (const int devices : {2, 4}) {
        const Plan plan{model, kind, devices, virtual_stages};
        const Learnt expected = learn_whole(model, plan.micro_batches), found = learn_on_devices(plan);
        require_near(found.losses, expected.losses, 1e-6, "loss");
        for (const auto& [name, values] : expected.parameters)
          require_near(found.parameters.at(name), values, 1e-5, name);
      }
}

TEST_CASE("parameters lie on the devices of their stages, and evaluation sees the values of all") {
  const Plan plan{{"gpt"}};
  const auto model = make(plan.model), whole = make(plan.model);
  const Tensor input = input_of(plan.model, 0, 0);
  const Variable expected = (*whole)(Variable(input));
  const auto pipeline = make_pipeline(plan, *model);
  CHECK(model->parameter("wte.weight").device() == parse_device("cpu:0"));
  CHECK(model->parameter("h.5.mlp.c_fc.weight").device() == parse_device("cpu:1"));
  CHECK(test::same_bits(pipeline->forward(Variable(input)).value(), expected.value()));
  // The copy of the tied weight follows the parameter.
  model->parameter("wte.weight").set_value(Tensor::zeros({11, 8}));
  for (const double value : test::values(pipeline->forward(Variable(input)).value())) REQUIRE(value == 0);
}

TEST_CASE("a failure on one device ends the step on all, with its reason") {
  const Plan plan{{"mlp"}, ScheduleKind::gpipe, 4};
  const auto model = make(plan.model);
  const auto pipeline = make_pipeline(plan, *model);
  std::vector<double> losses;
  auto step = step_functions(plan.model, 0, plan.micro_batches, losses);
  step.loss = [](int, const Variable&) -> Variable { throw Error(Errc::io, "the targets are gone"); };
  CHECK_THROWS_WITH(pipeline->train(step),
                    "pipeline rank 3, forward of micro-batch 0 at stage 3: the targets are gone");
}
