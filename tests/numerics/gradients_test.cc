// backward() of every operation against central differences in double.
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr double tolerance = 1e-7;
using Inputs = std::vector<Variable>;

Tensor random_double(Shape shape, std::uint64_t seed) {
  return random_tensor(std::move(shape), seed, DType::float64);
}

// A scalar on which every element has an influence of its own.
Variable weighted_sum(const Variable& value) {
  return sum(mul(value, Variable(random_double(value.shape(), 99))));
}

}  // namespace

TEST_CASE("gradients of add, with and without a bias's broadcast") {
  const auto run = [](const Inputs& in) { return weighted_sum(add(in[0], in[1])); };
  CHECK(grad_check(run, {random_double({3, 4}, 1), random_double({3, 4}, 2)}) < tolerance);
  CHECK(grad_check(run, {random_double({2, 3, 4}, 1), random_double({4}, 2)}) < tolerance);
  CHECK(grad_check(run, {random_double({2, 3, 4}, 1), random_double({3, 4}, 2)}) < tolerance);
}

TEST_CASE("gradients of mul and of a value used twice") {
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(mul(in[0], in[1])); },
                   {random_double({5}, 1), random_double({5}, 2)}) < tolerance);
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(mul(in[0], in[0])); }, {random_double({5}, 1)}) <
        tolerance);
  CHECK(grad_check(
            [](const Inputs& in) {
              const Variable twice = add(in[0], in[0]);
              return sum(mul(mul(twice, 3), relu(twice)));
            },
            {random_double({5}, 1)}) < tolerance);
}

TEST_CASE("gradients of relu and of dropout with a fixed mask") {
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(relu(in[0])); }, {random_double({20}, 1)}) < tolerance);
  CHECK(grad_check(
            [](const Inputs& in) {
              Generator generator(5);
              return weighted_sum(dropout(in[0], 0.4, generator));
            },
            {random_double({20}, 1)}) < tolerance);
}

TEST_CASE("gradients of matmul and linear") {
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(matmul(in[0], in[1])); },
                   {random_double({3, 5}, 1), random_double({5, 2}, 2)}) < tolerance);
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(linear(in[0], in[1], in[2])); },
                   {random_double({3, 5}, 1), random_double({4, 5}, 2), random_double({4}, 3)}) < tolerance);
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(linear(in[0], in[1])); },
                   {random_double({3, 5}, 1), random_double({4, 5}, 2)}) < tolerance);
}

TEST_CASE("gradients of conv2d") {
  for (const ConvOptions options : {ConvOptions{1, 0}, ConvOptions{2, 1}, ConvOptions{3, 2}}) {
    CHECK(grad_check([&](const Inputs& in) { return weighted_sum(conv2d(in[0], in[1], in[2], options)); },
                     {random_double({2, 2, 5, 6}, 1), random_double({3, 2, 3, 3}, 2), random_double({3}, 3)}) <
          tolerance);
    CHECK(grad_check([&](const Inputs& in) { return weighted_sum(conv2d(in[0], in[1], {}, options)); },
                     {random_double({1, 1, 5, 4}, 1), random_double({2, 1, 2, 3}, 2)}) < tolerance);
  }
}

TEST_CASE("gradients of max_pool2d, overlapping and not") {
  for (const PoolOptions options : {PoolOptions{2}, PoolOptions{3, 2, 1}, PoolOptions{2, 1, 0}}) {
    CHECK(grad_check([&](const Inputs& in) { return weighted_sum(max_pool2d(in[0], options)); },
                     {random_double({2, 2, 6, 7}, 1)}) < tolerance);
  }
}

TEST_CASE("gradients of batch_norm, in training and in evaluation") {
  for (bool training : {true, false}) {
    for (const Shape& shape : {Shape{6, 3}, Shape{3, 2, 4, 5}}) {
      const Shape channels{shape[1]};
      const auto run = [&](const Inputs& in) {
        // The running statistics are fresh each time: they must not change between two evaluations.
        return weighted_sum(batch_norm(in[0], in[1], in[2], random_double(channels, 4),
                                       Tensor::full(channels, 1.7, DType::float64), {.training = training}));
      };
      CHECK(grad_check(run, {random_double(shape, 1), random_double(channels, 2), random_double(channels, 3)}) <
            tolerance);
    }
  }
}

TEST_CASE("gradients of the losses") {
  const Tensor targets = Tensor::from<std::int64_t>({2, 0, 1, 2}, {4});
  const Tensor scores = random_double({4, 3}, 1);
  CHECK(grad_check([&](const Inputs& in) { return weighted_sum(log_softmax(in[0])); }, {scores}) < tolerance);
  CHECK(grad_check([&](const Inputs& in) { return nll_loss(in[0], targets); }, {scores}) < tolerance);
  CHECK(grad_check([&](const Inputs& in) { return mul(cross_entropy(in[0], targets), 2.5); }, {scores}) < tolerance);
  CHECK(grad_check([&](const Inputs& in) { return mse_loss(in[0], random_double({4, 3}, 7)); }, {scores}) < tolerance);
}

TEST_CASE("gradients of reshape, flatten, sum and mean") {
  CHECK(grad_check(
            [](const Inputs& in) {
              return weighted_sum(reshape(in[0], {3, -1}));
            },
            {random_double({2, 6}, 1)}) < tolerance);
  CHECK(grad_check([](const Inputs& in) { return weighted_sum(flatten(in[0])); }, {random_double({2, 3, 2}, 1)}) <
        tolerance);
  CHECK(grad_check([](const Inputs& in) { return mul(sum(in[0]), sum(in[0])); }, {random_double({7}, 1)}) < tolerance);
  CHECK(grad_check([](const Inputs& in) { return mul(mean(in[0]), 3); }, {random_double({7}, 1)}) < tolerance);
}

TEST_CASE("cross_entropy is nll_loss of log_softmax") {
  const Tensor targets = Tensor::from<std::int64_t>({2, 0, 1, 2}, {4});
  Variable a(random_tensor({4, 3}, 1), true), b(random_tensor({4, 3}, 1), true);
  const Variable fused = cross_entropy(a, targets), split = nll_loss(log_softmax(b), targets);
  CHECK(fused.value().item() == split.value().item());
  fused.backward();
  split.backward();
  CHECK(difference(a.grad(), b.grad()) < 1e-7);
}

TEST_CASE("a wrong shape is an error that names the operation and both shapes") {
  const auto variable = [](Shape shape) { return Variable(Tensor::zeros(std::move(shape))); };
  const auto targets = [](std::vector<std::int64_t> list) {
    return Tensor::from(list, {static_cast<std::int64_t>(list.size())});
  };
  using Catch::Contains;
  CHECK_THROWS_WITH(add(variable({2, 3}), variable({2})), Contains("add") && Contains("[2, 3]") && Contains("[2]"));
  CHECK_THROWS_WITH(mul(variable({2}), variable({3})), Contains("mul") && Contains("[2]") && Contains("[3]"));
  CHECK_THROWS_WITH(matmul(variable({2, 3}), variable({2, 3})), Contains("matmul: cannot multiply"));
  CHECK_THROWS_WITH(linear(variable({2, 3}), variable({4, 5})),
                    Contains("linear") && Contains("[2, 3]") && Contains("[4, 5]"));
  CHECK_THROWS_WITH(linear(variable({2, 3}), variable({4, 3}), variable({3})), Contains("bias of shape [3]"));
  CHECK_THROWS_WITH(conv2d(variable({1, 2, 5, 5}), variable({1, 3, 2, 2})),
                    Contains("[1, 2, 5, 5]") && Contains("[1, 3, 2, 2]"));
  CHECK_THROWS_WITH(conv2d(variable({1, 1, 2, 2}), variable({1, 1, 3, 3})), Contains("larger than the padded input"));
  CHECK_THROWS_WITH(conv2d(variable({1, 1, 5, 5}), variable({1, 1, 3, 3}), {}, {.stride = 0}), Contains("stride 0"));
  CHECK_THROWS_WITH(max_pool2d(variable({1, 1, 5, 5}), {.kernel = 2, .padding = 2}), Contains("half the kernel"));
  CHECK_THROWS_WITH(max_pool2d(variable({5, 5})), Contains("[5, 5]"));
  CHECK_THROWS_WITH(cross_entropy(variable({2, 3}), targets({0})), Contains("cross_entropy") && Contains("[2, 3]"));
  CHECK_THROWS_WITH(cross_entropy(variable({2, 3}), targets({0, 3})),
                    Contains("target 3 of row 1 is not one of the 3"));
  CHECK_THROWS_WITH(nll_loss(variable({2, 3}), targets({0, -1})), Contains("target -1"));
  CHECK_THROWS_WITH(mse_loss(variable({2}), Tensor::zeros({3})), Contains("mse_loss") && Contains("[3]"));
  CHECK_THROWS_WITH(
      batch_norm(variable({1, 2}), variable({2}), variable({2}), Tensor::zeros({2}), Tensor::zeros({2}), {}),
      Contains("more than one value"));
  CHECK_THROWS_WITH(add(variable({2}), Variable(Tensor::zeros({2}, DType::float64))), Contains("float64"));
}
