#include "worker/parallel/forms/tensor/collectives.h"

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

// With rank r's x, the group's function is the sum over all ranks of r times the result of rank r.
TEST_CASE("what each rank goes on with gets the gradients of all ranks") {
  run_ranks(4, [](ProcessGroup& ranks) {
    CountedGroup group(ranks);
    const Variable x(Tensor::from<float>({1, 2}, {2}), true);
    const Variable copy = copy_to_group(x, group);
    require(largest_difference(copy.value(), x.value()) == 0, "the same value");
    sum(mul(copy, ranks.rank() + 1.0)).backward();
    require(largest_difference(x.grad(), Tensor::full({2}, 1 + 2 + 3 + 4)) == 0, "the sum of the gradients");
    require(group.bytes() == 2 * 4 * 2 * 3 / 4, "one allreduce, in the backward pass");
  });
}

TEST_CASE("a sum over the ranks passes its gradient on to each") {
  run_ranks(4, [](ProcessGroup& ranks) {
    CountedGroup group(ranks);
    const Variable x(Tensor::full({3}, ranks.rank()), true);
    const Variable total = reduce_from_group(x, group);
    require(largest_difference(total.value(), Tensor::full({3}, 0 + 1 + 2 + 3)) == 0, "the sum of the values");
    sum(mul(total, 5)).backward();
    require(largest_difference(x.grad(), Tensor::full({3}, 5)) == 0, "the gradient");
    require(group.bytes() == 3 * 4 * 2 * 3 / 4, "one allreduce, in the forward pass");
  });
}

TEST_CASE("a value without a gradient costs no allreduce") {
  run_ranks(2, [](ProcessGroup& ranks) {
    CountedGroup group(ranks);
    const Variable weight(Tensor::full({2}, 1), true);
    sum(mul(copy_to_group(Variable(Tensor::full({2}, 1)), group), weight)).backward();
    require(group.bytes() == 0, "nothing was exchanged");
  });
}

// x (2, 4, 1) has number 10 sample + position.
TEST_CASE("ranges of positions are gathered, and the gradients of all ranks added in each range") {
  run_ranks(2, [](ProcessGroup& ranks) {
    CountedGroup group(ranks);
    const auto first = static_cast<float>(2 * ranks.rank());
    const Variable x(Tensor::from<float>({first, first + 1, 10 + first, 11 + first}, {2, 2, 1}), true);
    const Variable all = gather_from_sequence(x, group);
    require(largest_difference(all.value(), Tensor::from<float>({0, 1, 2, 3, 10, 11, 12, 13}, {2, 4, 1})) == 0,
            "all positions");
    sum(mul(all, Variable(Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4, 1})))).backward();
    const Tensor expected =
        ranks.rank() == 0 ? Tensor::from<float>({1, 2, 5, 6}, {2, 2, 1}) : Tensor::from<float>({3, 4, 7, 8}, {2, 2, 1});
    require(largest_difference(x.grad(), kernels::scale(expected, 2)) == 0, "twice, by two ranks");
  });
}

TEST_CASE("a sum over the ranks leaves each its range of the positions, and gathers their gradients") {
  run_ranks(2, [](ProcessGroup& ranks) {
    CountedGroup group(ranks);
    const Variable x(Tensor::from<float>({0, 1, 2, 3, 10, 11, 12, 13}, {2, 4, 1}), true);
    const Variable own = reduce_to_sequence(x, group);
    const Tensor expected = ranks.rank() == 0 ? Tensor::from<float>({0, 1, 10, 11}, {2, 2, 1})
                                              : Tensor::from<float>({2, 3, 12, 13}, {2, 2, 1});
    require(largest_difference(own.value(), kernels::scale(expected, 2)) == 0, "twice, by two ranks");
    sum(mul(own, ranks.rank() + 1.0)).backward();
    require(largest_difference(x.grad(), Tensor::from<float>({1, 1, 2, 2, 1, 1, 2, 2}, {2, 4, 1})) == 0, "gradients");
  });
  run_ranks(2, [](ProcessGroup& ranks) {
    CountedGroup group(ranks);
    std::string refusal;
    try {
      reduce_to_sequence(Variable(Tensor::zeros({1, 3, 1})), group);
    } catch (const Error& e) {
      refusal = e.what();
    }
    require(refusal == "3 positions are no multiple of 2 tensor-parallel ranks", refusal);
  });
}
