#include "worker/parallel/forms/context/ring_attention.h"

#include <cmath>
#include <memory>
#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/parallel/forms/context/ring_shift.h"
#include "worker/parallel/forms/context/zigzag.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionOptions;
using kernels::AttentionResult;

Tensor wide(const Tensor& tensor) {
  return size_of(tensor.dtype()) == 2 ? tensor.to(DType::float32) : tensor;
}

// (batch, time, width) -> (batch, heads, time, width / heads), a view
Tensor by_head(const Tensor& x, std::int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

// Returns query, key or value of (batch, time, 3 width), a view.
Tensor part_of(const Tensor& packed, std::int64_t i) {
  const std::int64_t width = packed.size(2) / 3;
  return packed.slice(2, i * width, width);
}

// Returns the block that goes round the ring: (2, batch, time, width).
Tensor keys_and_values(const Tensor& packed) {
  Tensor block =
      Tensor::empty({2, packed.size(0), packed.size(1), packed.size(2) / 3}, packed.dtype(), packed.device());
  for (std::int64_t i = 0; i < 2; ++i) {
    Tensor part = block.select(0, i);
    kernels::copy(part_of(packed, i + 1), part);
  }
  return block;
}

Tensor rows(const Tensor& by_head, const PositionRange& range) {
  return by_head.slice(2, range.start, range.length);
}

AttentionOptions options_of(const Tensor& query, bool causal) {
  return {.causal = causal, .scale = 1 / std::sqrt(static_cast<double>(query.size(3)))};
}

AttentionResult empty_result(const Tensor& query) {
  const Shape by_position{query.size(0), query.size(2), query.size(1) * query.size(3)};
  const Shape by_query{query.size(0), query.size(1), query.size(2)};
  return {.out = by_head(Tensor::empty(by_position, query.dtype(), query.device()), query.size(1)),
          .log_sum = Tensor::empty(by_query, query.dtype(), query.device())};
}

// Calls own(block), then other(owner, block) for each other rank's block, the nearest before this one first. The next
// block arrives meanwhile.
template <class Own, class Other>
void go_round(CountedGroup& group, Tensor block, Own own, Other other) {
  for (int step = 0; step < group.size(); ++step) {
    const bool is_last = step + 1 == group.size();
    const auto next = is_last ? nullptr : std::make_unique<RingShift>(group, block, RingShift::Kind::keys_and_values);
    if (step == 0)
      own();
    else
      other((group.rank() + group.size() - step) % group.size(), wide(block));
    if (next) block = next->take();
  }
}

// A rank's queries, and the keys that they see.
class Ring {
 public:
  Ring(const Tensor& packed, std::int64_t heads, CountedGroup& group)
      : group_(group),
        heads_(heads),
        packed_(wide(packed)),
        query_(by_head(part_of(packed_, 0), heads)),
        block_(keys_and_values(packed)) {}

  AttentionResult attend() const {
    AttentionResult all = empty_result(query_);
    go_round(
        group_, block_, [&] { kernel().attention(query_, own(1), own(2), {}, options_of(query_, true), all); },
        [&](int owner, const Tensor& block) { merge(seen(owner), block, all); });
    return all;
  }

  // Returns the gradient of packed. sums: those of all keys; grad (batch, heads, time, width).
  Tensor gradient(const kernels::AttentionSums& sums, const Tensor& grad, DType dtype) const {
    Tensor of_block = Tensor::empty(block_.shape(), packed_.dtype(), packed_.device());
    const Tensor of_query = Tensor::empty_like(of_block.select(0, 0));
    std::unique_ptr<RingShift> travelling;  // gradients of a block, sent from rank to rank until they are at its owner
    go_round(
        group_, block_,
        [&] {
          kernel().attention_backward(query_, own(1), own(2), {}, sums, grad, options_of(query_, true),
                                      gradients(of_query, of_block, false));
        },
        [&](int owner, const Tensor& block) {
          Tensor of_other = Tensor::zeros_like(of_block);
          add_gradients(seen(owner), block, sums, grad, gradients(of_query, of_other, true));
          if (travelling) kernels::add_in_place(of_other, travelling->take());
          travelling = std::make_unique<RingShift>(group_, of_other, RingShift::Kind::gradients);
        });
    if (travelling) kernels::add_in_place(of_block, travelling->take());
    return pack(of_query, of_block, dtype);
  }

 private:
  const kernels::Table& kernel() const { return kernels::of(packed_); }
  Tensor own(std::int64_t part) const { return by_head(part_of(packed_, part), heads_); }
  SeenPositions seen(int owner) const { return seen_positions(group_.rank(), owner, query_.size(2) / 2); }

  void merge(const SeenPositions& seen, const Tensor& block, const AttentionResult& all) const {
    const Tensor query = rows(query_, seen.queries);
    const AttentionResult part = empty_result(query);
    kernel().attention(query, rows(by_head(block.select(0, 0), heads_), seen.keys),
                       rows(by_head(block.select(0, 1), heads_), seen.keys), {}, options_of(query, false), part);
    kernel().merge_attention(part, {rows(all.out, seen.queries), rows(all.log_sum, seen.queries)});
  }

  AttentionGradients gradients(const Tensor& of_query, const Tensor& of_block, bool accumulate) const {
    return {by_head(of_query, heads_), by_head(of_block.select(0, 0), heads_), by_head(of_block.select(0, 1), heads_),
            accumulate};
  }

  void add_gradients(const SeenPositions& seen, const Tensor& block, const kernels::AttentionSums& sums,
                     const Tensor& grad, const AttentionGradients& out) const {
    const Tensor query = rows(query_, seen.queries);
    kernel().attention_backward(
        query, rows(by_head(block.select(0, 0), heads_), seen.keys),
        rows(by_head(block.select(0, 1), heads_), seen.keys), {},
        {rows(sums.log_sum, seen.queries).contiguous(), rows(sums.grad_dot_out, seen.queries).contiguous()},
        rows(grad, seen.queries), options_of(query, false),
        {rows(out.query, seen.queries), rows(out.key, seen.keys), rows(out.value, seen.keys), out.accumulate});
  }

  Tensor pack(const Tensor& of_query, const Tensor& of_block, DType dtype) const {
    Tensor packed = Tensor::empty(packed_.shape(), dtype, packed_.device());
    Tensor query = part_of(packed, 0), key = part_of(packed, 1), value = part_of(packed, 2);
    kernels::copy(of_query, query);
    kernels::copy(of_block.select(0, 0), key);
    kernels::copy(of_block.select(0, 1), value);
    return packed;
  }

  CountedGroup& group_;
  const std::int64_t heads_;
  const Tensor packed_;  // in a wide type
  const Tensor query_;   // (batch, heads, time, width)
  const Tensor block_;   // as sent
};

// (batch, time, width) twice -> (batch, heads, time): the sum of the products over each head's width.
Tensor dot_by_head(const Tensor& a, const Tensor& b, std::int64_t heads) {
  const Tensor product = kernels::multiply(wide(a), wide(b));
  const std::int64_t all = product.size(0) * product.size(1) * heads;
  Tensor sums = Tensor::empty({all, 1}, product.dtype(), product.device());
  kernels::of(product).sum(product, {all, product.size(2) / heads, 1}, sums);
  return sums.reshape({product.size(0), product.size(1), heads}).transpose(1, 2).contiguous();
}

void check(const Shape& shape, std::int64_t heads) {
  if (shape.size() == 3 && heads > 0 && shape[1] % 2 == 0 && shape[2] % (3 * heads) == 0) return;
  throw make_error(Errc::mismatch, "ring_attention: {} heads do not fit an input of shape {}, with two pieces of time",
                   heads, to_string(shape));
}

}  // namespace

Variable ring_attention(const Variable& given, std::int64_t heads, CountedGroup& group) {
  const Variable packed = autograd::autocast(autograd::CastClass::lower, given);
  const autograd::Function operation("ring_attention", {packed});
  check(packed.shape(), heads);
  const Tensor x = packed.value().contiguous();
  const AttentionResult result = Ring(x, heads, group).attend();
  const Tensor out = result.out.transpose(1, 2).reshape({x.size(0), x.size(1), x.size(2) / 3}).to(x.dtype());
  return operation.record(out, {x, out, result.log_sum}, [heads, &group](autograd::Backward& pass) {
    const Tensor &saved = pass.saved(0), grad = wide(pass.grad());
    const kernels::AttentionSums sums{pass.saved(2), dot_by_head(pass.saved(1), grad, heads)};
    pass.add(0, Ring(saved, heads, group).gradient(sums, by_head(grad, heads), saved.dtype()));
  });
}

}  // namespace ddprun
