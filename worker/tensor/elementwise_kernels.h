#pragma once

#include <cstdint>
#include <vector>

#include "worker/tensor/functors/binary.h"
#include "worker/tensor/functors/unary.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

using functor::Arguments;
using functor::Binary;
using functor::Comparison;
using functor::Unary;

// Operations of the table (kernels.h) on elements one by one.
struct ElementwiseKernels {
  // Functions of one element, driven by functors/; their operands are dense.
  Entry<void(Unary, const Arguments&, In x, Tensor& y)> unary{"unary"};
  Entry<void(Unary, const Arguments&, In saved, In grad, Tensor& out)> unary_gradient{"unary_gradient"};
  // a, b and cond are strided, of out's shape; grad and out are contiguous. binary: or all are blocked alike.
  Entry<void(Binary, const Arguments&, In a, In b, Tensor& out)> binary{"binary"};
  Entry<void(Binary, const Arguments&, int operand, In a, In b, In grad, Tensor& out)> binary_gradient{
      "binary_gradient"};
  Entry<void(Comparison, In a, In b, Tensor& out)> compare{"compare"};  // out: uint8, 0 or 1
  Entry<void(In cond, In a, In b, Tensor& out)> where{"where"};         // cond: uint8
  // Any two dtypes and any two devices; both strided, of equal numbers of elements.
  Entry<void(In from, Tensor& to)> copy{"copy"};
  // to[i] = from[i] for dense tensors of one device: each float32, and its copy of one 16-bit type.
  Entry<void(const std::vector<Tensor>& from, const std::vector<Tensor>& to)> cast_all{"cast_all"};
  Entry<void(Tensor& to, double value)> fill{"fill"};
  // Row i of x is dropped with the probability by random numbers of streams[i], from number first on; the rest is
  // scaled by 1 / (1 - probability). x and out may be one.
  Entry<void(In x, double probability, std::uint64_t seed, const std::vector<std::uint64_t>& streams,
             std::uint64_t first, Tensor& out)>
      dropout{"dropout"};
  // out = x a b, or that is added to out. a and b are scalars of x's type; x is float32 or float64, out may have 16
  // bits.
  Entry<void(In x, In a, In b, Tensor& out, bool accumulate)> scale_by{"scale_by"};
};

}  // namespace ddprun::kernels
