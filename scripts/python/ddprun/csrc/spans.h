#pragma once

#include <ATen/ATen.h>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ddprun/worker/capi/ddprun.h"

// Tensors as the library's spans of memory.
namespace ddprun_torch {

// The work after the end of an operation, such as a copy to where the caller wants the result.
using Finish = std::function<void()>;

inline void require_dense(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined(), "ddprun: ", operation, " got an undefined tensor");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, "ddprun: ", operation, " of a ", tensor.layout(),
                              " tensor is not supported: make it dense, with to_dense()");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "ddprun: ", operation, " needs tensors on the CPU, not on ",
                    tensor.device());
}

// Returns the type by which the library reduces elements; nullopt if it has none for them.
inline std::optional<std::int32_t> native_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DDPRUN_FLOAT32;
    case at::kDouble:
      return DDPRUN_FLOAT64;
    case at::kHalf:
      return DDPRUN_FLOAT16;
    case at::kBFloat16:
      return DDPRUN_BFLOAT16;
    case at::kChar:
      return DDPRUN_INT8;
    case at::kByte:
      return DDPRUN_UINT8;
    case at::kInt:
      return DDPRUN_INT32;
    case at::kLong:
      return DDPRUN_INT64;
    default:
      return std::nullopt;
  }
}

// The memory of a contiguous tensor, for operations that move elements and do not look at them: a type of the library
// of the same size stands for one that it lacks.
inline ddprun_span span_to_move(const at::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  void* const data = tensor.data_ptr();
  if (const auto dtype = native_dtype(tensor.scalar_type())) return {data, count, *dtype};
  switch (tensor.element_size()) {
    case 1:
      return {data, count, DDPRUN_UINT8};
    case 2:
      return {data, count, DDPRUN_FLOAT16};
    case 4:
      return {data, count, DDPRUN_INT32};
    case 8:
      return {data, count, DDPRUN_INT64};
    default:
      return {data, count * tensor.element_size() / 8, DDPRUN_INT64};
  }
}
// Returns how many of the span's elements stand for one of the tensor's.
inline std::size_t units_of(const at::Tensor& tensor) {
  return tensor.element_size() > 8 ? tensor.element_size() / 8 : 1;
}

// Contiguous memory with the tensor's values. finish copies a result from it to the tensor.
struct Staged {
  at::Tensor memory;
  Finish finish;
};
inline Staged staged_output(const at::Tensor& tensor, bool with_values) {
  if (tensor.is_contiguous()) return {tensor, {}};
  auto memory = with_values ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
  return {memory, [tensor, memory] { tensor.copy_(memory); }};
}

inline void require_same_type(const std::vector<at::Tensor>& tensors, at::ScalarType type, const char* operation) {
  for (const auto& tensor : tensors) {
    require_dense(tensor, operation);
    TORCH_CHECK_TYPE(tensor.scalar_type() == type, "ddprun: ", operation, " of tensors of different types: ", type,
                     " and ", tensor.scalar_type());
  }
}

// Returns whether the tensors' memory is one piece, in their order, so that it needs no copy.
inline bool adjacent(const std::vector<at::Tensor>& tensors) {
  const char* next = nullptr;
  for (const auto& tensor : tensors) {
    if (!tensor.is_contiguous()) return false;
    const auto* const data = static_cast<const char*>(tensor.data_ptr());
    if (next && data != next) return false;
    next = data + tensor.nbytes();
  }
  return true;
}

inline std::int64_t total(const std::vector<at::Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  return elements;
}

// A list of tensors as one flat tensor: a view where their memory is one piece, otherwise a copy.
inline at::Tensor flat_view(const std::vector<at::Tensor>& tensors) {
  return at::from_blob(tensors.front().data_ptr(), {total(tensors)}, tensors.front().options());
}
inline at::Tensor flat_input(const std::vector<at::Tensor>& tensors) {
  if (adjacent(tensors)) return flat_view(tensors);
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}
inline Staged flat_output(const std::vector<at::Tensor>& tensors) {
  if (adjacent(tensors)) return {flat_view(tensors), {}};
  auto flat = at::empty({total(tensors)}, tensors.front().options());
  return {flat, [flat, tensors] {
            std::int64_t offset = 0;
            for (const auto& tensor : tensors) {
              tensor.copy_(flat.narrow(0, offset, tensor.numel()).view_as(tensor));
              offset += tensor.numel();
            }
          }};
}

inline std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::size_t> counts;
  counts.reserve(tensors.size());
  for (const auto& tensor : tensors) counts.push_back(tensor.numel() * units_of(tensor));
  return counts;
}
inline bool equal_sizes(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors)
    if (tensor.numel() != tensors.front().numel()) return false;
  return true;
}

}  // namespace ddprun_torch
