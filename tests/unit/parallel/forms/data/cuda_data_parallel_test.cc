// DataParallel, pipelines and batches on emulated CUDA devices.
#include "worker/data/batch.h"
#include "worker/nn/models.h"
#include "worker/optim/clip.h"
#include "worker/parallel/forms/data/data_parallel.h"
#include "worker/parallel/forms/pipeline/device_pipeline.h"
#include "worker/parallel/forms/pipeline/stage.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

[[maybe_unused]] const bool has_devices = use_emulated_cuda(2);
const Device first{DeviceType::cuda, 0}, second{DeviceType::cuda, 1};

std::unique_ptr<nn::Module> make_net(std::uint64_t seed) {
  Generator generator(seed);
  return nn::make_model("mlp", {.input = {6}, .outputs = 3, .hidden = {8}}, generator);
}

struct Outcome {
  Tensor value, input_gradient;
  std::vector<Tensor> gradients;
};

template <class Forward>
Outcome run(const nn::Module& net, Device device, Forward forward) {
  const Variable input(random_tensor({5, 6}, 9).to(device), true);
  const Variable result = forward(input);
  sum(mul(result, result)).backward();
  Outcome outcome{result.value().to(Device{}), input.grad().to(Device{}), {}};
  for (const auto& [name, parameter] : net.named_parameters())
    outcome.gradients.push_back(parameter.grad().to(Device{}));
  return outcome;
}

}  // namespace

TEST_CASE("a batch divided over two CUDA devices gives what the CPU gives") {
  const auto alone = make_net(1), net = make_net(1);
  const Outcome expected = run(*alone, Device{}, [&](const Variable& input) { return (*alone)(input); });
  net->to(first);
  DataParallel parallel(*net, [] { return make_net(2); }, {first, second});
  const Outcome found = run(*net, first, [&](const Variable& input) { return parallel.forward(input); });
  CHECK(difference(found.value, expected.value) < 1e-5);
  CHECK(difference(found.input_gradient, expected.input_gradient) < 1e-5);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    CHECK(difference(found.gradients[i], expected.gradients[i]) < 1e-5);
}

TEST_CASE("the stages of a pipeline on two CUDA devices give the gradients of the CPU") {
  constexpr int micro_batches = 4;
  const auto input = [](int m) { return random_tensor({3, 6}, static_cast<std::uint64_t>(m)); };
  const auto loss_of = [](const Variable& result) { return sum(mul(result, result)); };
  const auto alone = make_net(1), net = make_net(1);
  for (int m = 0; m < micro_batches; ++m) loss_of((*alone)(Variable(input(m)))).backward();
  pipeline::DevicePipeline stages(
      *net, [] { return make_net(2); }, {first, second},
      pipeline::plan_schedule(pipeline::ScheduleKind::one_forward_one_backward,
                              {.ranks = 2, .micro_batches = micro_batches}),
      pipeline::cuts_at(*net, {"fc2"}, 2));
  stages.train({.micro_batches = micro_batches,
                .samples = [](int) { return std::int64_t{3}; },
                .input = [&](int m) { return Variable(input(m)); },
                .loss =
                    [&](int, const Variable& result) {
                      CHECK(result.device() == second);
                      return loss_of(result);
                    }});
  const auto expected = alone->named_parameters(), found = net->named_parameters();
  CHECK(found.front().second.device() == first);
  CHECK(found.back().second.device() == second);
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(difference(found[i].second.grad().to(Device{}), expected[i].second.grad()) < 1e-5);
  CHECK(std::abs(optim::grad_square_sum(found) / optim::grad_square_sum(expected) - 1) < 1e-5);
}

TEST_CASE("the inputs and the targets of a batch go to different CUDA devices") {
  data::Batch batch;
  batch.add("input", random_tensor({2, 3}, 1));
  batch.add("target", Tensor::from(std::vector<std::int64_t>{4, 5}, {2}));
  const data::Batch there = batch.to(first, second);
  CHECK(there.input().device() == first);
  CHECK(there.target().device() == second);
  CHECK(there.on_host("target").raw() == batch.target().raw());
}

TEST_CASE("a batch on a CUDA device keeps its tensors of the host") {
  data::Batch batch;
  batch.add("input", random_tensor({2, 3}, 1));
  batch.add("target", Tensor::from(std::vector<std::int64_t>{4, 5}, {2}));
  batch.samples = {7, 8};
  const data::Batch there = batch.to(second);
  CHECK(there.input().device() == second);
  CHECK(there.samples == batch.samples);
  CHECK(same_bits(there.input().to(Device{}), batch.input()));
  CHECK(there.on_host("target").raw() == batch.target().raw());
  CHECK(batch.on_host("target").raw() == batch.target().raw());
}
