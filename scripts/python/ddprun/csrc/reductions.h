#pragma once

#include <ATen/ATen.h>
#include <limits>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>

#include "ddprun/worker/capi/ddprun.h"
#include "spans.h"

// PyTorch's reductions of PyTorch's types in terms of the library's.
namespace ddprun_torch {

// The reduction of elements of one type: as the library's type `as`, by `reduction`, on values that `encode` makes of
// them and of which `decode` makes the result.
struct Encoding {
  at::ScalarType as;
  ddprun_reduction reduction;
  at::Tensor (*encode)(const at::Tensor&, at::ScalarType) = nullptr;  // null: the memory itself, viewed as `as`
  void (*decode)(const at::Tensor& encoded, const at::Tensor& result) = nullptr;
  bool average_of_integers = false;  // the library sums, the quotient is computed afterwards
};

inline double premultiplier(const c10d::ReduceOp& op) {
  const auto* const supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement, "ddprun: PREMUL_SUM without its factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

inline ddprun_reduction native_reduction(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {DDPRUN_SUM, 1};
    case c10d::ReduceOp::AVG:
      return {DDPRUN_AVERAGE, 1};
    case c10d::ReduceOp::PRODUCT:
      return {DDPRUN_PRODUCT, 1};
    case c10d::ReduceOp::MIN:
      return {DDPRUN_MIN, 1};
    case c10d::ReduceOp::MAX:
      return {DDPRUN_MAX, 1};
    case c10d::ReduceOp::BAND:
      return {DDPRUN_BIT_AND, 1};
    case c10d::ReduceOp::BOR:
      return {DDPRUN_BIT_OR, 1};
    case c10d::ReduceOp::BXOR:
      return {DDPRUN_BIT_XOR, 1};
    case c10d::ReduceOp::PREMUL_SUM:
      return {DDPRUN_PREMULTIPLIED_SUM, premultiplier(op)};
    default:
      TORCH_CHECK_VALUE(false, "ddprun: no such reduction");
  }
}

inline at::Tensor widened(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(type);
}
inline void narrowed(const at::Tensor& encoded, const at::Tensor& result) {
  result.copy_(encoded);
}
// The order of unsigned numbers is that of signed ones with the highest bit flipped.
inline at::Tensor highest_bit_flipped(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.view(type).bitwise_xor(std::numeric_limits<std::int64_t>::min());
}
inline void highest_bit_flipped_back(const at::Tensor& encoded, const at::Tensor& result) {
  result.view(at::kLong).copy_(encoded.bitwise_xor(std::numeric_limits<std::int64_t>::min()));
}

// True and false are 1 and 0: a sum is "any", a product is "all".
inline ddprun_reduction reduction_of_bools(ddprun_reduction reduction) {
  switch (reduction.op) {
    case DDPRUN_SUM:
    case DDPRUN_BIT_OR:
      return {DDPRUN_MAX, 1};
    case DDPRUN_PRODUCT:
    case DDPRUN_BIT_AND:
      return {DDPRUN_MIN, 1};
    case DDPRUN_AVERAGE:
    case DDPRUN_PREMULTIPLIED_SUM:
      TORCH_CHECK_VALUE(false, "ddprun: truth values have no average and no multiple");
    default:
      return reduction;
  }
}

inline Encoding encoding_of(at::ScalarType type, const c10d::ReduceOp& op) {
  auto reduction = native_reduction(op);
  const bool ordered = reduction.op == DDPRUN_MIN || reduction.op == DDPRUN_MAX;
  const bool averages_integers = reduction.op == DDPRUN_AVERAGE && at::isIntegralType(type, false);
  if (averages_integers) reduction.op = DDPRUN_SUM;
  switch (type) {
    case at::kBool:
      return {at::kByte, reduction_of_bools(reduction)};
    case at::kShort:
    case at::kUInt16:
      return {at::kInt, reduction, widened, narrowed, averages_integers};
    case at::kUInt32:
      return {at::kLong, reduction, widened, narrowed, averages_integers};
    case at::kUInt64:
      TORCH_CHECK_VALUE(!averages_integers, "ddprun: the average of uint64 is not supported");
      if (ordered) return {at::kLong, reduction, highest_bit_flipped, highest_bit_flipped_back};
      return {at::kLong, reduction};
    case at::kComplexHalf:
    case at::kComplexFloat:
    case at::kComplexDouble:
      TORCH_CHECK_VALUE(!ordered, "ddprun: complex numbers have no minimum and no maximum");
      TORCH_CHECK_NOT_IMPLEMENTED(reduction.op != DDPRUN_PRODUCT,
                                  "ddprun: products of complex numbers are not supported");
      return {c10::toRealValueType(type), reduction};
    default:
      break;
  }
  if (native_dtype(type)) return {type, reduction, nullptr, nullptr, averages_integers};
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type), "ddprun: a reduction of ", type, " is not supported");
  return {at::kFloat, reduction, widened, narrowed};  // 8-bit floats
}

inline ddprun_span span_as(const at::Tensor& tensor, at::ScalarType type) {
  const auto bytes_of_element = c10::elementSize(type);
  return {tensor.data_ptr(), tensor.nbytes() / bytes_of_element, *native_dtype(type)};
}

// The memory that the library gets for a tensor.
struct Encoded {
  at::Tensor memory;  // keeps the span's memory
  ddprun_span span;
};
inline Encoded encoded_input(const at::Tensor& tensor, const Encoding& encoding) {
  auto memory = tensor.contiguous();
  if (encoding.encode) memory = encoding.encode(memory, encoding.as).contiguous();
  return {memory, span_as(memory, encoding.as)};
}

// Memory for a result of the tensor's size, and the function that copies it from there to the tensor.
struct EncodedOutput {
  Encoded encoded;
  Finish finish;
};
// with_values: it holds the tensor's values, since it is an input as well. size is the group's, for averages.
inline EncodedOutput encoded_output(const at::Tensor& tensor, const Encoding& encoding, bool with_values, int size) {
  auto staged = staged_output(tensor, with_values);
  at::Tensor memory = staged.memory;
  Finish finish = std::move(staged.finish);
  if (encoding.encode) {
    memory = with_values ? encoding.encode(memory, encoding.as).contiguous()
                         : at::empty(tensor.sizes(), tensor.options().dtype(encoding.as));
    finish = [tensor, memory, decode = encoding.decode] { decode(memory, tensor); };
  }
  if (encoding.average_of_integers)
    finish = [memory, size, rest = std::move(finish)] {
      memory.div_(size, "trunc");
      if (rest) rest();
    };
  return {{memory, span_as(memory, encoding.as)}, std::move(finish)};
}

}  // namespace ddprun_torch
