#pragma once

#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/tensor/kernels.h"

// Operations that consist of one functor.
namespace ddprun::autograd {

// Throws Errc::mismatch naming both operands.
void check_same_dtype(const char* name, const Tensor& a, const Tensor& b);

Variable unary(const char* name, kernels::Unary function, const Variable& input,
               const kernels::Arguments& arguments = {});
// Broadcasts the operands. Computes in the widest type of both under autocast.
Variable binary(const char* name, kernels::Binary function, const Variable& a, const Variable& b,
                const kernels::Arguments& arguments = {});

}  // namespace ddprun::autograd
