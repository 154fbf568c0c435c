#include "worker/parallel/forms/tensor/cross_entropy.h"

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::int64_t rows = 6, classes = 8;

Tensor targets() {
  return Tensor::from<std::int64_t>({0, 7, 3, -100, 4, 4}, {rows});
}

Tensor part(const Tensor& whole, const ProcessGroup& group) {
  return sharding::local_shard(whole, {.axis = "tensor", .dimension = 1}, group.rank(), group.size());
}

// Compares scores of which each rank has some classes; large ones must not overflow.
void check_like_whole(double scale, DType dtype, double tolerance) {
  const Tensor scores = kernels::scale(normal_tensor({rows, classes}, 1, dtype), scale);
  const Variable whole(scores, true);
  const Variable expected = cross_entropy(whole, targets());
  mul(expected, 3).backward();
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      CountedGroup tensor(group);
      const Variable own(part(scores, group), true);
      const Variable loss = vocabulary_parallel_cross_entropy(own, targets(), tensor);
      require(std::abs(loss.value().item() - expected.value().item()) <= tolerance * (1 + expected.value().item()),
              "loss " + std::to_string(loss.value().item()) + ", not " + std::to_string(expected.value().item()));
      mul(loss, 3).backward();
      require(largest_difference(own.grad(), part(whole.grad(), group)) < tolerance, "gradient");
      const auto sent = static_cast<std::uint64_t>(3 * (2 * (ranks - 1) * 8 * rows / ranks));
      require(tensor.bytes() == sent, "three numbers a row");
    });
  }
}

std::string refusal(const Tensor& targets) {
  std::string text;
  run_ranks(2, [&](ProcessGroup& group) {
    CountedGroup tensor(group);
    try {
      vocabulary_parallel_cross_entropy(Variable(Tensor::zeros({2, 4})), targets, tensor);
    } catch (const Error& e) {
      if (group.rank() == 0) text = e.what();
    }
  });
  return text;
}

}  // namespace

TEST_CASE("the loss over classes that ranks have parts of, and its gradient, are those of whole scores") {
  check_like_whole(1, DType::float32, 1e-6);
  check_like_whole(1, DType::float64, 1e-14);
  check_like_whole(200, DType::float32, 1e-5);
}

TEST_CASE("the gradient of the loss over parts of the classes is that of finite differences") {
  const Tensor scores = normal_tensor({rows, classes}, 2, DType::float64);
  run_ranks(2, [&](ProcessGroup& group) {
    CountedGroup tensor(group);
    const Variable own(part(scores, group), true);
    vocabulary_parallel_cross_entropy(own, targets(), tensor).backward();
    constexpr double step = 1e-5;
    for (std::int64_t i = 0; i < scores.numel(); ++i) {
      const auto loss = [&](double change) {
        Tensor moved = scores.clone();
        moved.data<double>()[i] += change;
        return vocabulary_parallel_cross_entropy(Variable(part(moved, group)), targets(), tensor).value().item();
      };
      const double slope = (loss(step) - loss(-step)) / (2 * step);
      Tensor whole = Tensor::zeros({rows, classes}, DType::float64);
      sharding::put_local_shard(own.grad(), {.axis = "tensor", .dimension = 1}, group.rank(), group.size(), whole);
      const bool is_own = i % classes / (classes / group.size()) == group.rank();
      require(!is_own || std::abs(whole.data<double>()[i] - slope) < 1e-8, "element " + std::to_string(i));
    }
  });
}

TEST_CASE("targets have to be one a row, among all classes") {
  CHECK(refusal(Tensor::from<std::int64_t>({0, 8}, {2})) ==
        "cross_entropy: target 8 of row 1 is not one of the 8 classes");
  CHECK(refusal(Tensor::from<std::int64_t>({0}, {1})).find("do not fit scores of shape [2, 4]") != std::string::npos);
}
