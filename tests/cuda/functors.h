#pragma once

#include <cstdint>

#include "worker/tensor/functors/binary.h"
#include "worker/tensor/functors/unary.h"

// Every functor as a kernel over device memory; float32.
namespace ddprun::test {

void run_unary(functor::Unary function, const functor::Arguments& arguments, std::int64_t count, const float* x,
               float* y);
void run_unary_gradient(functor::Unary function, const functor::Arguments& arguments, std::int64_t count,
                        const float* saved, const float* grad, float* out);
void run_binary(functor::Binary function, const functor::Arguments& arguments, std::int64_t count, const float* a,
                const float* b, float* out);
void run_binary_gradient(functor::Binary function, const functor::Arguments& arguments, int operand, std::int64_t count,
                         const float* a, const float* b, const float* grad, float* out);

}  // namespace ddprun::test
