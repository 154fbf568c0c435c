#include "worker/parallel/forms/data/data_parallel.h"

#include <cmath>

#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/nn/random_scope.h"
#include "worker/optim/optimizer.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const Device main_device = parse_device("cpu:0"), second = parse_device("cpu:1"), third = parse_device("cpu:2");

std::unique_ptr<nn::Module> make_net(std::uint64_t seed = 1) {
  Generator generator(seed);
  return nn::make_model("mlp", {.input = {6}, .outputs = 3, .hidden = {8}, .dropout = 0.3}, generator);
}

std::unique_ptr<nn::Module> make_net_with_statistics(std::uint64_t seed = 1) {
  Generator generator(seed);
  return nn::make_model("cnn_bn", {.input = {1, 28, 28}, .outputs = 10}, generator);
}

struct Outcome {
  Tensor value, input_gradient;
  std::vector<Tensor> gradients;
};

template <class Forward>
Outcome run(nn::Module& net, std::int64_t rows, Forward forward) {
  nn::SampleKeys keys{.seed = 3, .epoch = 2, .samples = {}};
  for (std::int64_t row = 0; row < rows; ++row) keys.samples.push_back(100 + row);
  const nn::RandomScope random(keys);
  const Variable input(random_tensor({rows, 6}, 9), true);
  const Variable result = forward(input);
  sum(mul(result, result)).backward();
  Outcome outcome{result.value(), input.grad(), {}};
  for (const auto& [name, parameter] : net.named_parameters()) outcome.gradients.push_back(parameter.grad());
  return outcome;
}

Outcome run_on(const std::vector<Device>& devices, std::int64_t rows) {
  const auto net = make_net();
  DataParallel parallel(
      *net, [] { return make_net(2); }, devices);
  return run(*net, rows, [&](const Variable& input) { return parallel.forward(input); });
}

void check_same_bits(const Outcome& a, const Outcome& b) {
  CHECK(same_bits(a.value, b.value));
  CHECK(same_bits(a.input_gradient, b.input_gradient));
  for (std::size_t i = 0; i < a.gradients.size(); ++i) CHECK(same_bits(a.gradients[i], b.gradients[i]));
}

}  // namespace

TEST_CASE("devices give the same bits as the same replicas on one device, dropout included") {
  for (const std::int64_t rows : {1, 2, 5, 16}) {
    const Outcome there = run_on({main_device, second, third}, rows);
    CHECK(there.value.device() == main_device);
    check_same_bits(there, run_on({main_device, main_device, main_device}, rows));
  }
}

TEST_CASE("devices together compute what one model computes") {
  const auto net = make_net();
  const Outcome whole = run(*net, 7, [&](const Variable& input) { return (*net)(input); });
  const Outcome divided = run_on({main_device, second, third}, 7);
  CHECK(difference(whole.value, divided.value) < 1e-6);
  CHECK(difference(whole.input_gradient, divided.input_gradient) < 1e-6);
  for (std::size_t i = 0; i < whole.gradients.size(); ++i)
    CHECK(difference(whole.gradients[i], divided.gradients[i]) < 1e-5);
}

TEST_CASE("in 16 bits one device gives the model's own bits, and several its gradients within float32's rounding") {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const autograd::AutocastScope precision(dtype);
    const auto net = make_net();
    for (auto& [name, parameter] : net->named_parameters())  // as a reducer does
      Variable(parameter).set_grad_storage(Tensor::zeros_like(parameter.value()));
    const Outcome whole = run(*net, 7, [&](const Variable& input) { return (*net)(input); });
    check_same_bits(run_on({main_device}, 7), whole);
    const Outcome divided = run_on({main_device, second, third}, 7);
    CHECK(same_bits(divided.value, whole.value));
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
      REQUIRE(divided.gradients[i].dtype() == DType::float32);
      CHECK(difference(whole.gradients[i], divided.gradients[i]) < 1e-6);
    }
  }
}

TEST_CASE("a frozen parameter gets no gradient on any device, and the others what one model computes") {
  const auto frozen_net = [] {
    auto net = make_net();
    for (const char* name : {"fc1.weight", "fc1.bias"}) net->parameter(name).set_requires_grad(false);
    return net;
  };
  const auto whole_net = frozen_net(), net = frozen_net();
  const Outcome whole = run(*whole_net, 7, [&](const Variable& input) { return (*whole_net)(input); });
  DataParallel parallel(*net, [] { return make_net(2); }, {main_device, second, third});
  for (int pass = 0; pass < 2; ++pass) {
    net->zero_grad();
    const Outcome divided = run(*net, 7, [&](const Variable& input) { return parallel.forward(input); });
    CHECK(difference(whole.value, divided.value) < 1e-6);
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
      CHECK(divided.gradients[i].defined() == whole.gradients[i].defined());
      if (whole.gradients[i].defined()) CHECK(difference(whole.gradients[i], divided.gradients[i]) < 1e-5);
    }
  }
}

TEST_CASE("anomaly mode names the module on a device whose result, or gradient, is not finite") {
  const auto net = make_net();
  DataParallel parallel(*net, [] { return make_net(2); }, {main_device, second});
  const Tensor healthy = net->parameter("fc1.weight").value().clone();
  const autograd::AnomalyScope anomaly;
  const auto pass = [&](double factor) {
    const nn::RandomScope random({.seed = 3, .epoch = 2, .samples = {1, 2, 3, 4}});
    mul(sum(parallel.forward(Variable(random_tensor({4, 6}, 9)))), factor).backward();
  };
  pass(1);
  net->parameter("fc1.weight").set_value(Tensor::full({8, 6}, INFINITY));
  CHECK_THROWS_WITH(pass(1), Catch::Contains("in module fc1 produced a NaN or an infinity: its result"));
  net->parameter("fc1.weight").set_value(healthy);
  // The values are finite on the first device, their products on the others are not.
  CHECK_THROWS_WITH(pass(3e38), Catch::Contains("in module fc") && Catch::Contains("the gradient of its input"));
}

TEST_CASE("replicas follow the model's updates") {
  const auto learn = [](bool parallel_devices) {
    const auto net = make_net();
    DataParallel parallel(*net, [] { return make_net(2); }, {main_device, second});
    const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, net->named_parameters());
    Outcome last;
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      last = run(*net, 6,
                 [&](const Variable& input) { return parallel_devices ? parallel.forward(input) : (*net)(input); });
      optimizer->step();
    }
    return last;
  };
  const Outcome divided = learn(true), whole = learn(false);
  CHECK(difference(divided.value, whole.value) < 1e-5);
}

TEST_CASE("the first device's running statistics are the model's") {
  const auto net = make_net_with_statistics();
  const auto first_half_alone = make_net_with_statistics();
  DataParallel parallel(*net, [] { return make_net_with_statistics(2); }, {main_device, second});
  const Tensor images = random_tensor({8, 1, 28, 28}, 4);
  parallel.forward(Variable(images));
  (*first_half_alone)(Variable(images.slice(0, 0, 4).contiguous()));
  const auto found = net->named_buffers(), expected = first_half_alone->named_buffers();
  REQUIRE(found.size() == expected.size());
  for (std::size_t b = 0; b < found.size(); ++b) CHECK(same_bits(found[b].second, expected[b].second));
}

TEST_CASE("what surrounds the call holds on the devices: evaluation, no gradients, autocast, module names") {
  const auto net = make_net();
  DataParallel parallel(*net, [] { return make_net(2); }, {main_device, second});
  const Variable input(random_tensor({4, 6}, 9));
  {
    const autograd::AutocastScope precision(DType::bfloat16);
    CHECK(parallel.forward(input).dtype() == DType::bfloat16);
  }
  net->train(false);
  const NoGradScope no_grad;
  const Variable value = parallel.forward(input);
  CHECK_FALSE(value.requires_grad());
  CHECK(difference(value.value(), (*net)(input).value()) < 1e-6);
}

TEST_CASE("a batch without rows has a result without rows and gradients of zero") {
  Generator generator(1);
  const auto make_layer = [&] { return std::make_unique<nn::Linear>(6, 3, generator); };
  const auto layer = make_layer();
  DataParallel parallel(*layer, make_layer, {main_device, second});
  const Outcome none = run(*layer, 0, [&](const Variable& input) { return parallel.forward(input); });
  CHECK(none.value.shape() == Shape{0, 3});
  CHECK(none.input_gradient.shape() == Shape{0, 6});
  for (const Tensor& gradient : none.gradients) {
    REQUIRE(gradient.defined());
    CHECK(same_bits(gradient, Tensor::zeros(gradient.shape())));
  }
}

TEST_CASE("what a replica throws comes out, and the next pass runs") {
  const auto net = make_net();
  DataParallel parallel(*net, [] { return make_net(2); }, {main_device, second});
  CHECK_THROWS_WITH(parallel.forward(Variable(random_tensor({4, 5}, 1))), Catch::Contains("[2, 5]"));
  CHECK(parallel.forward(Variable(random_tensor({4, 6}, 1))).shape() == Shape{4, 3});
}

TEST_CASE("devices that cannot be used are refused") {
  const auto net = make_net();
  CHECK_THROWS_WITH(DataParallel(*net, [] { return make_net(); }, {}), Catch::Contains("no devices"));
  CHECK_THROWS_WITH(DataParallel(*net, [] { return make_net_with_statistics(); }, {main_device, second}),
                    Catch::Contains("other parameters"));
}
