// Tests that the table of operations does not contain: combinations, errors.
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

using Inputs = std::vector<Variable>;

TEST_CASE("gradients of a value used twice") {
  constexpr double tolerance = 1e-7;
  CHECK(grad_check([](const Inputs& in) { return sum(mul(in[0], in[0])); }, {random_tensor({5}, 1, DType::float64)}) <
        tolerance);
  CHECK(grad_check(
            [](const Inputs& in) {
              const Variable twice = add(in[0], in[0]);
              return sum(mul(mul(twice, 3), relu(twice)));
            },
            {random_tensor({5}, 1, DType::float64)}) < tolerance);
}

TEST_CASE("dropout keeps its share, scales the rest, and belongs to the sample") {
  const Variable ones(Tensor::full({2, 50000}, 1));
  const Tensor y = dropout(ones, 0.25, 1, {4, 5}).value();
  const auto all = values(y);
  const auto dropped = std::count(all.begin(), all.end(), 0.0);
  CHECK(std::abs(static_cast<double>(dropped) / 100000 - 0.25) < 0.01);
  CHECK(std::all_of(all.begin(), all.end(), [](double v) { return v == 0 || v == Approx(4.0 / 3); }));
  // Row 1 of this batch is row 0 of another.
  const Tensor other = dropout(Variable(Tensor::full({1, 50000}, 1)), 0.25, 1, {5}).value();
  CHECK(same_bits(other.reshape({50000}), y.select(0, 1).clone()));
  CHECK(kernels::sum(dropout(ones, 1, 1, {4, 5}).value()).item() == 0);
  Generator generator(1);
  const Tensor first = dropout(ones, 0.5, generator).value(), second = dropout(ones, 0.5, generator).value();
  CHECK_FALSE(same_bits(first, second));
}

TEST_CASE("an operation that saved a tensor notices that it was changed in place") {
  Variable x(random_tensor({3}, 1), true);
  const Variable y = mul(x, x);
  Tensor value = x.value();
  value.fill(2);
  CHECK_THROWS_WITH(sum(y).backward(), Catch::Contains("mul had saved was changed in place"));
}

TEST_CASE("reductions of large tensors keep their precision") {
  const Variable x(Tensor::full({1 << 12, 257}, 0.1));
  CHECK(sum(x, {0}).value().select(0, 200).item() == Approx(0.1F * static_cast<double>(1 << 12)).epsilon(1e-6));
  CHECK(sum(x, {1}).value().select(0, 9).item() == Approx(0.1F * 257.0).epsilon(1e-6));
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
