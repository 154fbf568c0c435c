#pragma once

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>
#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/utils/pybind.h>
#include <utility>
#include <vector>

#include "ddprun/worker/capi/ddprun.h"

namespace ddprun_torch {

using Tensors = std::vector<at::Tensor>;

// The work after the end of an operation, such as a copy to where the caller wants the result.
using Finish = std::function<void()>;

// One call of the user's: the arguments of an operation as the library gets them, and what they need.
class Call {
 public:
  Call(c10d::OpType call_type, std::int32_t library_operation) : type(call_type), operation(library_operation) {}
  // options are those of c10d.
  template <class Options>
  Call(c10d::OpType call_type, std::int32_t library_operation, const Options& options)
      : Call(call_type, library_operation) {
    async = options.asyncOp;
    timeout = options.timeout;
  }

  // Comes before the tensors.
  void reduce_by(const c10d::ReduceOp& op) {
    static_assert(int{c10d::ReduceOp::SUM} == DDPRUN_SUM && int{c10d::ReduceOp::AVG} == DDPRUN_AVERAGE &&
                  int{c10d::ReduceOp::PRODUCT} == DDPRUN_PRODUCT && int{c10d::ReduceOp::MIN} == DDPRUN_MIN &&
                  int{c10d::ReduceOp::MAX} == DDPRUN_MAX && int{c10d::ReduceOp::BAND} == DDPRUN_BIT_AND &&
                  int{c10d::ReduceOp::BOR} == DDPRUN_BIT_OR && int{c10d::ReduceOp::BXOR} == DDPRUN_BIT_XOR &&
                  int{c10d::ReduceOp::PREMUL_SUM} == DDPRUN_PREMULTIPLIED_SUM);
    arguments.reduction = {int{op.op_}, op.op_ == c10d::ReduceOp::PREMUL_SUM ? premultiplier(op) : 1};
    reduces_ = true;
  }

  // The caller keeps the tensors, or the vector of them, during the call.
  void read(at::TensorList tensors) {
    shown = tensors;
    for (const auto& tensor : tensors) inputs.push_back(staged(tensor, true, false));
  }
  void write(at::TensorList tensors) {
    results = tensors.vec();
    for (const auto& tensor : tensors) outputs.push_back(staged(tensor, false, true));
  }
  // reads: the operation uses this rank's values; receives: it gives this rank a result.
  void change(const Tensors& tensors, bool reads, bool receives) {
    shown = tensors;
    results = tensors;
    for (const auto& tensor : tensors) outputs.push_back(staged(tensor, reads, receives));
  }
  void read_list(const std::vector<Tensors>& lists) {
    arguments.lists = static_cast<std::int32_t>(lists.size());
    if (!lists.empty()) read(lists.front());
  }
  void write_list(const std::vector<Tensors>& lists) {
    arguments.lists = static_cast<std::int32_t>(lists.size());
    if (!lists.empty()) write(lists.front());
  }

  bool is_message() const { return operation == DDPRUN_SEND || operation == DDPRUN_RECV; }

  c10d::OpType type;
  std::int32_t operation;
  bool async = true;
  bool is_part = false;                  // of another call
  std::chrono::milliseconds timeout{0};  // zero: the group's
  ddprun_tensor_arguments arguments{};
  c10::SmallVector<ddprun_tensor, 1> inputs, outputs;
  c10::SmallVector<at::Tensor, 2> memory;  // that the library uses
  std::vector<Finish> finishes;
  Tensors results;
  at::TensorList shown;  // a profile shows their shapes

 private:
  static double premultiplier(const c10d::ReduceOp& op) {
    const auto* const supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
    TORCH_CHECK_VALUE(supplement, "ddprun: PREMUL_SUM without its factor");
    return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
  }

  void require_dense(const at::Tensor& tensor) const {
    if (tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu()) return;
    const pybind11::gil_scoped_acquire locked;
    pybind11::module_::import("ddprun.group.tensors").attr("require_dense")(tensor, ddprun_operation_name(operation));
  }

  // Returns the tensor, or contiguous memory of the type that the library takes in its place.
  ddprun_tensor staged(const at::Tensor& tensor, bool reads, bool receives) {
    require_dense(tensor);
    const auto own_type = tensor.scalar_type();
    const auto type =
        reduces_ ? static_cast<at::ScalarType>(ddprun_reduced_as(static_cast<std::int32_t>(own_type))) : own_type;
    if (type == own_type && tensor.is_contiguous()) {
      memory.push_back(tensor);
    } else {
      memory.push_back(reads ? tensor.to(type).contiguous() : at::empty(tensor.sizes(), tensor.options().dtype(type)));
      if (receives) finishes.push_back([tensor, from = memory.back()] { tensor.copy_(from); });
    }
    return {memory.back().data_ptr(), tensor.numel(), tensor.dim() > 0 ? tensor.size(0) : -1,
            static_cast<std::int32_t>(own_type), static_cast<std::int32_t>(tensor.element_size())};
  }

  bool reduces_ = false;
};

}  // namespace ddprun_torch
