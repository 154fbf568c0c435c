#include "worker/autograd/autocast.h"

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/autograd/node.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/memory_owner.h"

namespace ddprun::autograd {

// The 16-bit copies of contiguous leaves, by their memory. A step uses the weights of the step before, so the first one
// that is missing casts all that this thread has used before and that have changed: one launch on a device.
class WeightCache {
 public:
  ~WeightCache() { leaves_before() = std::move(leaves_); }

  Tensor cast(const Variable& leaf, DType dtype) {
    const Tensor& weight = leaf.value();
    const bool launches = weight.device().type != DeviceType::cpu;
    if (launches && !fits(entries_[weight.raw()], weight, dtype)) cast_those_before(weight, dtype);
    Entry& entry = entries_[weight.raw()];
    if (!fits(entry, weight, dtype)) {
      const MemoryScope scope(MemoryOwner::casts);
      entry = {weight, weight.version(), weight.to(dtype), entry.used};
    }
    if (!std::exchange(entry.used, true)) leaves_.push_back(Access::leaf(leaf));
    return entry.cast;
  }

 private:
  using Leaves = std::vector<std::weak_ptr<VariableNode>>;

  static Leaves& leaves_before() {
    static thread_local Leaves leaves;
    return leaves;
  }

  // Casts the weights on the device of a wanted weight.
  void cast_those_before(const Tensor& wanted, DType dtype) {
    std::vector<Tensor> from, to;
    Leaves candidates = std::exchange(leaves_before(), {});
    candidates.insert(candidates.end(), leaves_.begin(), leaves_.end());
    for (const auto& leaf : candidates) {
      const auto node = leaf.lock();
      if (!node || !is_castable(*node) || node->value.device() != wanted.device()) continue;
      const Tensor& weight = node->value;
      Entry& entry = entries_[weight.raw()];
      if (fits(entry, weight, dtype)) continue;
      entry = {weight, weight.version(), Tensor::empty(weight.shape(), dtype, weight.device()), entry.used};
      from.push_back(weight);
      to.push_back(entry.cast);
    }
    if (!from.empty()) kernels::of(wanted).cast_all(from, to);
  }

  static bool is_castable(const VariableNode& node) {
    const Tensor& weight = node.value;
    return !node.producer && node.requires_grad && weight.dtype() == DType::float32 && weight.numel() > 0 &&
           weight.is_contiguous() && weight.storage()->is_present();
  }

  struct Entry {
    Tensor weight;  // its memory is not reused for another tensor as long as this exists
    std::uint64_t version = 0;
    Tensor cast;
    bool used = false;  // true if it was asked for, not only cast with others
  };

  static bool fits(const Entry& entry, const Tensor& weight, DType dtype) {
    return entry.cast.defined() && entry.version == weight.version() && entry.cast.dtype() == dtype &&
           entry.weight.shape() == weight.shape();
  }

  std::unordered_map<const void*, Entry> entries_;
  Leaves leaves_;  // those of the entries that were used
};

namespace {

thread_local DType lower_dtype = DType::float32;
thread_local WeightCache* weight_cache = nullptr;

bool is_16_bit(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

// Neither of the two 16-bit types is wider than the other.
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
  if (!is_weight || !weight_cache) return input.value().to(dtype);
  const auto leaf = Access::leaf(input).lock();
  if (leaf->cast_place && is_16_bit(dtype)) return leaf->cast_place->cast(leaf->value, dtype);
  return weight_cache->cast(input, dtype);
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
  const Function operation("cast", {input});
  Variable result = operation.record(cast_value(input, dtype), {},
                                     [from = input.dtype()](Backward& pass) { pass.add(0, pass.grad().to(from)); });
  if (const Edge edge = Access::edge(result); edge.node)
    edge.node->narrows_float32 = input.dtype() == DType::float32 && is_16_bit(dtype);
  return result;
}

}  // namespace ddprun
