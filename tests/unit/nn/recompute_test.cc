// Module::set_recompute(): the same bits from less memory.
#include "worker/autograd/checkpoint.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/nn/random_scope.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;
using nn::Recompute;

namespace {

std::unique_ptr<nn::Module> make_gpt(double dropout) {
  Generator generator(1);
  return nn::make_model("gpt",
                        {.input = {32},
                         .input_dtype = DType::int64,
                         .outputs = 64,
                         .dropout = dropout,
                         .gpt = {.layers = 12, .heads = 2, .width = 32, .context = 32}},
                        generator);
}

std::unique_ptr<nn::Module> make_resnet() {
  Generator generator(1);
  return nn::make_model("resnet18", {.input = {1, 16, 16}, .channels = 8}, generator);
}

Tensor tokens() {
  std::vector<std::int64_t> all(4 * 32);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i * 37 % 64);
  return Tensor::from(all, {4, 32});
}

struct Outcome {
  std::vector<Tensor> gradients, buffers;
  std::size_t peak;  // bytes beyond those in use before the forward pass
};

Outcome run(nn::Module& model, const Tensor& input, Recompute which) {
  model.set_recompute(which);
  for (auto& [name, parameter] : model.named_parameters())
    parameter.set_grad_storage(Tensor::zeros_like(parameter.value()));
  const std::size_t before = memory_stats({}).allocated;
  reset_peak_memory({});
  {
    std::optional<nn::RandomScope> random(nn::SampleKeys{.seed = 3, .epoch = 1, .samples = {5, 2, 8, 0}});
    const Variable loss = mean(model(Variable(input)));
    random.reset();  // before the backward pass
    loss.backward();
  }
  Outcome outcome{.gradients = {}, .buffers = {}, .peak = memory_stats({}).peak - before};
  for (const auto& [name, parameter] : model.named_parameters()) outcome.gradients.push_back(parameter.grad());
  for (const auto& [name, buffer] : model.named_buffers()) outcome.buffers.push_back(buffer);
  return outcome;
}

void check_same(const Outcome& a, const Outcome& b) {
  for (std::size_t i = 0; i < a.gradients.size(); ++i) CHECK(same_bits(a.gradients[i], b.gradients[i]));
  for (std::size_t i = 0; i < a.buffers.size(); ++i) CHECK(same_bits(a.buffers[i], b.buffers[i]));
}

}  // namespace

TEST_CASE(
    "a transformer with 12 blocks that are computed again has the same gradients from less than 40 % of the memory") {
  for (const double dropout : {0.0, 0.2}) {
    const auto plain = run(*make_gpt(dropout), tokens(), Recompute::none),
               blocks = run(*make_gpt(dropout), tokens(), Recompute::blocks),
               all = run(*make_gpt(dropout), tokens(), Recompute::all);
    check_same(plain, blocks);
    check_same(plain, all);
    INFO("dropout " << dropout << ": " << plain.peak << ", " << blocks.peak << ", " << all.peak << " bytes");
    CHECK(static_cast<double>(blocks.peak) < 0.4 * static_cast<double>(plain.peak));
    CHECK(all.peak < blocks.peak);
  }
}

TEST_CASE("a residual network that is computed again has the same gradients and running statistics") {
  const Tensor images = random_tensor({4, 1, 16, 16}, 2);
  const auto plain = run(*make_resnet(), images, Recompute::none);
  for (const Recompute which : {Recompute::blocks, Recompute::all}) {
    const auto again = run(*make_resnet(), images, which);
    check_same(plain, again);
    CHECK(again.peak < plain.peak);
  }
}

TEST_CASE("in evaluation nothing is computed again") {
  const auto model = make_gpt(0);
  model->set_recompute(Recompute::all);
  model->train(false);
  const Variable result = (*model)(Variable(tokens()));
  CHECK(result.requires_grad());
  mean(result).backward();
  CHECK(model->named_parameters()[0].second.grad().defined());
}
