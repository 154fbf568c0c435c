#include "ddprun/worker/autograd/autocast.h"

#include <unordered_map>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/node.h"

namespace ddprun::autograd {

// 16-bit copies of contiguous leaves, by their memory.
class WeightCache {
 public:
  Tensor cast(const Tensor& weight, DType dtype) {
    Entry& entry = entries_[weight.raw()];
    if (!fits(entry, weight, dtype)) entry = {weight, weight.version(), weight.to(dtype)};
    return entry.cast;
  }

 private:
  struct Entry {
    Tensor weight;  // its memory is not given to another tensor as long as this is here
    std::uint64_t version = 0;
    Tensor cast;
  };

  static bool fits(const Entry& entry, const Tensor& weight, DType dtype) {
    return entry.cast.defined() && entry.version == weight.version() && entry.cast.dtype() == dtype &&
           entry.weight.shape() == weight.shape();
  }

  std::unordered_map<const void*, Entry> entries_;
};

namespace {

thread_local DType lower_dtype = DType::float32;
thread_local WeightCache* weight_cache = nullptr;

bool is_16_bit(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

// The two 16-bit types have no wider one among them.
DType wider(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::float64 || b == DType::float64) return DType::float64;
  return DType::float32;
}

bool takes_part(const Tensor& tensor, CastClass kind) {
  return tensor.defined() && is_floating(tensor.dtype()) &&
         (tensor.dtype() != DType::float64 || kind == CastClass::widest);
}

DType target_of(CastClass kind, std::span<const Variable> inputs) {
  if (kind == CastClass::lower) return lower_dtype;
  if (kind == CastClass::float32) return DType::float32;
  DType widest = lower_dtype;
  bool first = true;
  for (const Variable& input : inputs) {
    if (!takes_part(input.value(), kind)) continue;
    widest = std::exchange(first, false) ? input.dtype() : wider(widest, input.dtype());
  }
  return widest;
}

Tensor cast_value(const Variable& input, DType dtype) {
  const bool is_weight =
      input.is_leaf() && input.requires_grad() && input.dtype() == DType::float32 && input.value().is_contiguous();
  return is_weight && weight_cache ? weight_cache->cast(input.value(), dtype) : input.value().to(dtype);
}

}  // namespace

AutocastScope::AutocastScope(DType dtype) : dtype_before_(lower_dtype), cache_before_(weight_cache) {
  if (!is_16_bit(dtype) && dtype != DType::float32)
    throw make_error(Errc::usage, "autocast: {} is none of float16, bfloat16 and float32", name_of(dtype));
  if (!weight_cache) {
    cache_ = std::make_unique<WeightCache>();
    weight_cache = cache_.get();
  }
  lower_dtype = dtype;
}

AutocastScope::~AutocastScope() {
  lower_dtype = dtype_before_;
  weight_cache = cache_before_;
}

DType autocast_dtype() {
  return lower_dtype;
}

void autocast(CastClass kind, std::span<Variable> inputs) {
  if (lower_dtype == DType::float32 || kind == CastClass::keep) return;
  const DType target = target_of(kind, inputs);
  for (Variable& input : inputs)
    if (takes_part(input.value(), kind)) input = cast(input, target);
}

Variable autocast(CastClass kind, const Variable& input) {
  Variable result = input;
  autocast(kind, std::span(&result, 1));
  return result;
}

Tensor autocast(CastClass kind, const Tensor& operand) {
  return autocast(kind, Variable(operand)).value();
}

}  // namespace ddprun::autograd

namespace ddprun {

Variable cast(const Variable& input, DType dtype) {
  using namespace autograd;
  if (!input.defined() || input.dtype() == dtype) return input;
  if (!is_floating(input.dtype()) || !is_floating(dtype))
    throw make_error(Errc::usage, "cast: {} to {} has no gradient: only floating-point types have",
                     name_of(input.dtype()), name_of(dtype));
  const Operation operation("cast", {input});
  Variable result = operation.record(cast_value(input, dtype), {},
                                     [from = input.dtype()](Backward& pass) { pass.add(0, pass.grad().to(from)); });
  if (const Edge edge = Access::edge(result); edge.node)
    edge.node->narrows_float32 = input.dtype() == DType::float32 && is_16_bit(dtype);
  return result;
}

}  // namespace ddprun
