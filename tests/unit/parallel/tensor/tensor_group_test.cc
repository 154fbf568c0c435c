#include "ddprun/worker/parallel/tensor/tensor_group.h"

#include "tests/support/catch.h"
#include "tests/unit/parallel/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

// With rank r's x: the group's function is the sum over all ranks of r times what rank r computes.
TEST_CASE("what each rank goes on with gets the gradients of all ranks") {
  run_ranks(4, [](ProcessGroup& ranks) {
    TensorGroup group(ranks);
    const Variable x(Tensor::from<float>({1, 2}, {2}), true);
    const Variable copy = copy_to_group(x, group);
    require(largest_difference(copy.value(), x.value()) == 0, "the same value");
    sum(mul(copy, ranks.rank() + 1.0)).backward();
    require(largest_difference(x.grad(), Tensor::full({2}, 1 + 2 + 3 + 4)) == 0, "the sum of the gradients");
    require(group.elements() == 2, "one allreduce, in the backward pass");
  });
}

TEST_CASE("a sum over the ranks passes its gradient on to each") {
  run_ranks(4, [](ProcessGroup& ranks) {
    TensorGroup group(ranks);
    const Variable x(Tensor::full({3}, ranks.rank()), true);
    const Variable total = reduce_from_group(x, group);
    require(largest_difference(total.value(), Tensor::full({3}, 0 + 1 + 2 + 3)) == 0, "the sum of the values");
    sum(mul(total, 5)).backward();
    require(largest_difference(x.grad(), Tensor::full({3}, 5)) == 0, "the gradient");
    require(group.elements() == 3, "one allreduce, in the forward pass");
  });
}

TEST_CASE("a value without a gradient costs no allreduce") {
  run_ranks(2, [](ProcessGroup& ranks) {
    TensorGroup group(ranks);
    const Variable weight(Tensor::full({2}, 1), true);
    sum(mul(copy_to_group(Variable(Tensor::full({2}, 1)), group), weight)).backward();
    require(group.elements() == 0, "nothing was exchanged");
  });
}
