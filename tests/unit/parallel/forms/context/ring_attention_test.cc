#include "worker/parallel/forms/context/ring_attention.h"

#include <atomic>
#include <limits>
#include <vector>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/parallel/forms/context/ring_shift.h"
#include "worker/parallel/forms/context/zigzag.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::int64_t heads = 2, width = 6;

// The inputs of a test: the operands, and the weights by which the result becomes a scalar.
struct Sequence {
  Sequence(std::int64_t samples, std::int64_t time, DType dtype = DType::float64)
      : packed(normal_tensor({samples, time, 3 * width}, 1, dtype)),
        weights(normal_tensor({samples, time, width}, 2, dtype)) {}
  Tensor packed, weights;
};

struct Attended {
  Tensor out, gradient;
};

Attended at_one_rank(const Sequence& sequence) {
  const Variable packed(sequence.packed, true);
  const Variable out = packed_attention(packed, heads, {.causal = true});
  sum(mul(out, Variable(sequence.weights))).backward();
  return {out.value(), packed.grad()};
}

Attended at_rank(const Sequence& sequence, CountedGroup& group) {
  const auto own = [&](const Tensor& all) { return own_positions(all, 1, group.rank(), group.size()); };
  const Variable packed(own(sequence.packed), true);
  const Variable out = ring_attention(packed, heads, group);
  sum(mul(out, Variable(own(sequence.weights)))).backward();
  return {out.value(), packed.grad()};
}

void require_as_at_one_rank(int ranks, const Sequence& sequence, double tolerance) {
  const Attended whole = at_one_rank(sequence);
  run_ranks(ranks, [&](ProcessGroup& all) {
    CountedGroup group(all);
    const Attended own = at_rank(sequence, group);
    const auto of_rank = [&](const Tensor& tensor) { return own_positions(tensor, 1, all.rank(), all.size()); };
    require(largest_difference(own.out, of_rank(whole.out)) < tolerance, "the result");
    require(largest_difference(own.gradient, of_rank(whole.gradient)) < tolerance, "the gradient");
  });
}

}  // namespace

TEST_CASE("results of some keys and of others merge into that of all") {
  const auto dtype = GENERATE(DType::float32, DType::float64);
  const std::int64_t queries = 5, keys = 12, first = 4;
  const Tensor query = normal_tensor({2, heads, queries, 3}, 3, dtype),
               key = normal_tensor({2, heads, keys, 3}, 4, dtype), value = normal_tensor({2, heads, keys, 7}, 5, dtype);
  const auto attend = [&](std::int64_t start, std::int64_t count) {
    const kernels::AttentionResult result{Tensor::empty({2, heads, queries, 7}, dtype),
                                          Tensor::empty({2, heads, queries}, dtype)};
    kernels::of(query).attention(query, key.slice(2, start, count), value.slice(2, start, count), {}, {.scale = 0.5},
                                 result);
    return result;
  };
  const auto all = attend(0, keys), some = attend(0, first), others = attend(first, keys - first);
  kernels::of(query).merge_attention(some, others);
  const double tolerance = dtype == DType::float64 ? 1e-14 : 1e-6;
  CHECK(largest_difference(others.out, all.out) < tolerance);
  CHECK(largest_difference(others.log_sum, all.log_sum) < tolerance);

  Tensor(some.log_sum).fill(-std::numeric_limits<double>::infinity());  // these queries saw none of those keys
  kernels::of(query).merge_attention(some, others);
  CHECK(largest_difference(others.out, all.out) < tolerance);
  Tensor(others.log_sum).fill(-std::numeric_limits<double>::infinity());
  kernels::of(query).merge_attention(all, others);
  CHECK(largest_difference(others.out, all.out) < tolerance);
  CHECK(largest_difference(others.log_sum, all.log_sum) < tolerance);

  Tensor(others.log_sum).fill(-std::numeric_limits<double>::infinity());  // nor those
  kernels::of(query).merge_attention(some, others);
  CHECK(largest_difference(others.out, all.out) < tolerance);
  CHECK(others.log_sum.to(DType::float64).contiguous().data<double>()[0] == -std::numeric_limits<double>::infinity());
}

TEST_CASE("gradients of some keys are added to those that are there") {
  const std::int64_t time = 150;  // several tiles of queries
  const Tensor query = normal_tensor({1, 1, time, 3}, 3), key = normal_tensor({1, 1, time, 3}, 4),
               value = normal_tensor({1, 1, time, 3}, 5), grad = normal_tensor({1, 1, time, 3}, 6);
  const kernels::AttentionResult result{Tensor::empty_like(query), Tensor::empty({1, 1, time})};
  kernels::of(query).attention(query, key, value, {}, {}, result);
  const auto gradients = [&](double before, bool accumulate) {
    const auto filled = [&] { return Tensor::full(query.shape(), before); };
    const kernels::AttentionGradients out{filled(), filled(), filled(), accumulate};
    kernels::of(query).attention_backward(query, key, value, {}, {result.log_sum}, grad, {}, out);
    return out;
  };
  const auto alone = gradients(7, false), added = gradients(2, true);
  const auto check = [](const Tensor& from, const Tensor& to) {
    CHECK(largest_difference(kernels::add(from, Tensor::full(from.shape(), 2)), to) < 1e-5);
  };
  check(alone.query, added.query);
  check(alone.key, added.key);
  check(alone.value, added.value);
}

TEST_CASE("attention round a ring is attention over the whole sequence") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const std::int64_t time = GENERATE(24, 480);  // one tile of queries, and several
  CAPTURE(ranks, time);
  require_as_at_one_rank(ranks, {2, time}, 1e-12);
  require_as_at_one_rank(ranks, {2, time, DType::float32}, 2e-5);
}

// Each element of each rank's input moves while the others stay: the scalar is of all ranks.
TEST_CASE("gradients round a ring are those of finite differences") {
  const int ranks = GENERATE(2, 4);
  const Sequence sequence(1, 8);
  run_ranks(ranks, [&](ProcessGroup& all) {
    CountedGroup group(all);
    const Tensor gradient = at_rank(sequence, group).gradient;
    const auto scalar = [&](const Tensor& packed) {
      const NoGradScope none;
      const Variable out = ring_attention(Variable(packed), heads, group);
      std::vector<double> value{
          sum(mul(out, Variable(own_positions(sequence.weights, 1, all.rank(), ranks)))).value().item()};
      all.allreduce(span_of(value), ReduceOp::sum, {.blocking = true});
      return value[0];
    };
    constexpr double step = 1e-5;
    Tensor packed = own_positions(sequence.packed, 1, all.rank(), ranks);
    for (int mover = 0; mover < ranks; ++mover)
      for (std::int64_t i = 0; i < packed.numel(); ++i) {
        const double distance = mover == all.rank() ? step : 0;
        double& element = packed.data<double>()[i];
        const double before = element;
        element = before + distance;
        const double above = scalar(packed);
        element = before - distance;
        const double below = scalar(packed);
        element = before;
        if (mover != all.rank()) continue;
        require(std::abs((above - below) / (2 * step) - gradient.data<double>()[i]) < 1e-8, "an element's gradient");
      }
  });
}

TEST_CASE("a rank sends its keys and values twice to each other rank, and their gradients once") {
  const int ranks = GENERATE(2, 4);
  const std::int64_t samples = 3, time = 16;
  run_ranks(ranks, [&](ProcessGroup& all) {
    const auto elements = static_cast<std::uint64_t>((ranks - 1) * 2 * samples * (time / ranks) * width);
    CountedGroup of_double(all);
    at_rank({samples, time}, of_double);
    require(of_double.bytes() == 3 * elements * 8, "float64");
    CountedGroup of_half(all);
    const autograd::AutocastScope precision(DType::bfloat16);
    at_rank({samples, time, DType::float32}, of_half);
    require(of_half.bytes() == elements * (2 * 2 + 4), "16 bits, and gradients of 32");
  });
}

TEST_CASE("sixteen bits attend round a ring about as at one rank") {
  const autograd::AutocastScope precision(DType::bfloat16);
  const Sequence sequence(2, 24, DType::float32);
  const Attended whole = at_one_rank(sequence);
  run_ranks(4, [&](ProcessGroup& all) {
    const autograd::AutocastScope of_thread(DType::bfloat16);
    CountedGroup group(all);
    const Attended own = at_rank(sequence, group);
    const auto of_rank = [&](const Tensor& tensor) { return own_positions(tensor, 1, all.rank(), all.size()); };
    require(own.out.dtype() == DType::bfloat16, "the type of the result");
    require(largest_difference(own.out, of_rank(whole.out)) < 0.02, "the result");
    require(largest_difference(own.gradient, of_rank(whole.gradient)) < 0.05, "the gradient");
  });
}

TEST_CASE("a rank that leaves a ring early ends the attention of the others") {
  std::atomic<int> ended = 0;
  CHECK_THROWS_WITH(run_ranks(3,
                              [&](ProcessGroup& all) {
                                CountedGroup group(all);
                                const Tensor packed = normal_tensor({1, 4, 3 * width}, 1);
                                if (all.rank() == 0) {
                                  const RingShift shift(group, packed, RingShift::Kind::keys_and_values);
                                  throw std::runtime_error("this rank fails");
                                }
                                try {
                                  for (int i = 0; i < 2; ++i) ring_attention(Variable(packed), heads, group);
                                } catch (const Error&) {
                                  ++ended;
                                }
                              }),
                    "this rank fails");
  CHECK(ended == 2);
}

TEST_CASE("a shift that nobody takes ends the group") {
  run_ranks(2, [](ProcessGroup& all) {
    CountedGroup group(all);
    if (all.rank() == 0) const RingShift shift(group, Tensor::zeros({4}), RingShift::Kind::gradients);
    try {
      all.barrier({.blocking = true});
    } catch (const Error&) {
      const std::string why = all.failure()->what();
      require(all.rank() == 1 || why.find("attention ended before its ring did") != std::string::npos, why);
      return;
    }
    throw std::runtime_error("the group goes on");
  });
}

TEST_CASE("an input that heads or pieces do not divide is refused") {
  run_ranks(1, [](ProcessGroup& all) {
    CountedGroup group(all);
    for (const Shape& shape : {Shape{1, 4, 10}, Shape{1, 3, 12}, Shape{4, 12}}) {
      std::string refusal;
      try {
        ring_attention(Variable(Tensor::zeros(shape)), heads, group);
      } catch (const Error& e) {
        refusal = e.what();
      }
      require(refusal.starts_with("ring_attention: 2 heads do not fit an input of shape"), refusal);
    }
  });
}
