// DataParallel and batches on emulated CUDA devices.
#include "ddprun/worker/data/batch.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/parallel/data_parallel.h"
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
