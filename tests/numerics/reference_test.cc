// Comparisons with PyTorch 1.13.1 in double. The net: conv2d(1 -> 2, 3x3, stride 2, padding 1), batch norm, relu,
// max-pool (3, stride 2, padding 1), linear 8 -> 3, cross-entropy; input and parameters from pattern() below. The
// optimizers: five steps on a parabola. The tables are torch's printed values.
#include "worker/nn/layers.h"
#include "worker/optim/optimizer.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const std::vector<double> scores = {-0.453102580017, 0.225812831146,  -0.422273269959, -0.581604817239, 0.269998842814,
                                    -0.230908095454, -0.484843477208, 0.455422802929,  -0.414981512728};
const std::vector<double> loss = {1.17004798908};
const std::vector<double> grad_conv_weight = {
    -0.00340852723668, -0.113120347279,  0.210115545639,   0.0690331576987,  -0.0911026181487, -0.138169134646,
    -0.0754105235041,  0.0903164533005,  -0.0426888014917, 0.00629957036083, -0.121065418154,  -0.00928386266489,
    -0.202733777998,   -0.0123479991431, 0.00898568662145, 0.0364047389357,  -0.0477331793943, -0.0722121314382};
const std::vector<double> grad_conv_bias = {1.11022302463e-16, -1.11022302463e-16};
const std::vector<double> grad_bn_weight = {0.0789449574087, 0.135781281957};
const std::vector<double> grad_bn_bias = {0.186271881355, 0.0781328681808};
const std::vector<double> grad_fc_weight = {
    -0.0102682825736, -0.0152450350168, -0.102025057591,  -0.0338164551599, -0.0215688569406,   0.00781811086428,
    -0.0471806283535, 0.00391374757482, 0.0103927770003,  0.1659160584,     0.026728714811,     0.115902054986,
    0.0431184722474,  0.0968412126647,  0.0486819358905,  0.0769954723649,  -0.000124494426682, -0.150671023383,
    0.0752963427796,  -0.0820855998259, -0.0215496153068, -0.104659323529,  -0.00150130753695,  -0.0809092199397};
const std::vector<double> grad_fc_bias = {-0.108139013175, 0.179070406557, -0.0709313933823};
const std::vector<double> running_mean = {-0.0490562178588, -0.0470751519402};
const std::vector<double> running_var = {0.904078259284, 0.905356039878};
const std::vector<double> eval_scores = {-0.449032026979, -0.195950560547, -0.00720568799425,
                                         -0.485574637598, -0.224613882714, 0.0310654956171,
                                         -0.455276329361, -0.166648198256, -0.0108264782215};
const std::vector<double> sgd = {0.9,   1.11022302463e-16, -1,     0.82,   0.4, 0.2, 0.756, 0.48, -0.76, 0.7048, 0.496,
                                 0.008, 0.66384,           0.4992, -0.6064};
const std::vector<double> sgd_momentum = {
    0.895,         0.01,           -1.0025,        0.717025,        2.21095,
    -1.1452375,    0.509857375,    2.81199025,     0.1934524375,    0.318885750625,
    1.48927432375, 0.449091731563, 0.181639709809, -0.500035840494, -0.731443479252};
const std::vector<double> adam = {0.900000001,    -1.90000000005, 0.400000000067, 0.801187421659, -1.80012718808,
                                  0.30053519266,  0.70487125256,  -1.70047393341, 0.202084356674, 0.61291539819,
                                  -1.60113840876, 0.105241061219, 0.527814451371, -1.5022246485,  0.0107316616986};
const std::vector<double> adam_decay = {0.990000009524, -1.9900000005,  0.490000000666, 0.980008932412, -1.98000173616,
                                        0.480005349476, 0.970032837085, -1.97000634899, 0.470019627537, 0.96007780189,
                                        -1.96001495249, 0.460046374746, 0.95014984956,  -1.95002861891, 0.450089049909};

// Element i is ((i * factor) mod modulus - modulus / 2) / modulus + shift, integer division inside.
void pattern(Tensor tensor, std::int64_t factor, std::int64_t modulus, double shift = 0) {
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const double value = static_cast<double>(i * factor % modulus - modulus / 2) / static_cast<double>(modulus) + shift;
    if (tensor.dtype() == DType::float64) {
      tensor.data<double>()[i] = value;
    } else {
      tensor.data<float>()[i] = static_cast<float>(value);
    }
  }
}

struct Net {
  Net() {
    Generator generator(0);
    model.add("conv", std::make_unique<nn::Conv2d>(1, 2, 3, generator, nn::Conv2dOptions{.stride = 2, .padding = 1}))
        .add("bn", std::make_unique<nn::BatchNorm>(2))
        .add("relu", std::make_unique<nn::ReLU>())
        .add("pool", std::make_unique<nn::MaxPool2d>(PoolOptions{3, 2, 1}))
        .add("flatten", std::make_unique<nn::Flatten>())
        .add("fc", std::make_unique<nn::Linear>(8, 3, generator));
    std::int64_t factor = 29;
    for (auto& [name, parameter] : model.named_parameters()) {
      pattern(parameter.value(), factor, 31, name == "bn.weight" ? 1 : name == "bn.bias" ? 0.5 : 0);
      factor += 2;
    }
    pattern(images, 37, 23);
  }
  nn::Sequential model;
  Tensor images = Tensor::empty({3, 1, 7, 7});
  Tensor labels = Tensor::from<std::int64_t>({2, 0, 1}, {3});
};

std::vector<double> five_steps(const char* name, const optim::OptimOptions& options) {
  Variable parameter(Tensor::from<double>({1, -2, 0.5}, {3}), true);
  auto optimizer = optim::make_optimizer(name, options, {{"p", parameter}});
  std::vector<double> all;
  for (int step = 0; step < 5; ++step) {
    optimizer->zero_grad();
    const Variable distance = add(mul(parameter, Variable(Tensor::from<double>({1, 2, 3}, {3}))),
                                  Variable(Tensor::from<double>({-0.5, -1, 1}, {3})));
    sum(mul(distance, distance)).backward();
    optimizer->step();
    for (double value : values(parameter.value())) all.push_back(value);
  }
  return all;
}

}  // namespace

TEST_CASE("a net with every kind of layer agrees with PyTorch: values, gradients, running statistics") {
  Net net;
  const Variable output = net.model(Variable(net.images));
  CHECK(difference(values(output.value()), scores) < 1e-6);
  const Variable cost = cross_entropy(output, net.labels);
  CHECK(cost.value().item() == Approx(loss[0]).epsilon(1e-6));
  cost.backward();
  const std::vector<std::pair<std::string, std::vector<double>>> gradients = {
      {"conv.weight", grad_conv_weight}, {"conv.bias", grad_conv_bias}, {"bn.weight", grad_bn_weight},
      {"bn.bias", grad_bn_bias},         {"fc.weight", grad_fc_weight}, {"fc.bias", grad_fc_bias}};
  const auto parameters = net.model.named_parameters();
  REQUIRE(parameters.size() == gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    INFO(gradients[i].first);
    CHECK(parameters[i].first == gradients[i].first);
    // The normalization after the convolution lets the terms of the gradient of its bias cancel.
    const double least_scale = gradients[i].first == "conv.bias" ? largest_magnitude(grad_conv_weight) : 0;
    CHECK(difference(values(parameters[i].second.grad()), gradients[i].second, least_scale) < 1e-6);
  }
  const auto buffers = net.model.named_buffers();
  REQUIRE(buffers.size() == 3);
  CHECK(buffers[0].first == "bn.running_mean");
  CHECK(difference(values(buffers[0].second), running_mean) < 1e-6);
  CHECK(difference(values(buffers[1].second), running_var) < 1e-6);
  CHECK(buffers[2].first == "bn.num_batches_tracked");
  CHECK(buffers[2].second.item() == 1);
}

TEST_CASE("evaluation uses the running statistics and leaves them alone") {
  Net net;
  net.model(Variable(net.images));
  net.model.train(false);
  const auto before = values(net.model.named_buffers()[1].second);
  CHECK(difference(values(net.model(Variable(net.images)).value()), eval_scores) < 1e-6);
  CHECK(values(net.model.named_buffers()[1].second) == before);
  CHECK(net.model.named_buffers()[2].second.item() == 1);
}

TEST_CASE("optimizers walk as PyTorch's do") {
  CHECK(difference(five_steps("sgd", {.lr = 0.1}), sgd) < 1e-10);
  CHECK(difference(five_steps("sgd", {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05}), sgd_momentum) < 1e-10);
  CHECK(difference(five_steps("adam", {.lr = 0.1}), adam) < 1e-10);
  CHECK(difference(five_steps("adam", {.lr = 0.01, .weight_decay = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6}),
                   adam_decay) < 1e-10);
}
