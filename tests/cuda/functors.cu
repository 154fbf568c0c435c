// Compiled by nvcc where it is installed, and always as C++ over launch.h.
#include "tests/cuda/functors.h"
#include "tests/cuda/launch.h"

namespace ddprun::test {
namespace {

using functor::Arguments;
using functor::make;

constexpr unsigned threads = 128;

__device__ std::int64_t index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class F>
__global__ void unary(Arguments arguments, std::int64_t count, const float* x, float* y) {
  const std::int64_t i = index();
  if (i < count) y[i] = make<F>(arguments)(x[i]);
}

template <class F>
__global__ void unary_gradient(Arguments arguments, std::int64_t count, const float* saved, const float* grad,
                               float* out) {
  const std::int64_t i = index();
  if (i < count) out[i] = make<F>(arguments).gradient(saved[i], grad[i]);
}

template <class F>
__global__ void binary(Arguments arguments, std::int64_t count, const float* a, const float* b, float* out) {
  const std::int64_t i = index();
  if (i < count) out[i] = make<F>(arguments)(a[i], b[i]);
}

template <class F>
__global__ void binary_gradient(Arguments arguments, int operand, std::int64_t count, const float* a, const float* b,
                                const float* grad, float* out) {
  const std::int64_t i = index();
  if (i >= count) return;
  const F f = make<F>(arguments);
  out[i] = operand == 0 ? f.gradient_a(a[i], b[i], grad[i]) : f.gradient_b(a[i], b[i], grad[i]);
}

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace

#define DDPRUN_CASE(kernel, name, functor_, ...) \
  case decltype(function)::name:                 \
    return launch(kernel<functor::functor_>, blocks_for(count), threads, __VA_ARGS__);

void run_unary(functor::Unary function, const Arguments& arguments, std::int64_t count, const float* x, float* y) {
#define DDPRUN_ROW(name, functor_) DDPRUN_CASE(unary, name, functor_, arguments, count, x, y)
  switch (function) { DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW) }
#undef DDPRUN_ROW
}

void run_unary_gradient(functor::Unary function, const Arguments& arguments, std::int64_t count, const float* saved,
                        const float* grad, float* out) {
#define DDPRUN_ROW(name, functor_) DDPRUN_CASE(unary_gradient, name, functor_, arguments, count, saved, grad, out)
  switch (function) { DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW) }
#undef DDPRUN_ROW
}

void run_binary(functor::Binary function, const Arguments& arguments, std::int64_t count, const float* a,
                const float* b, float* out) {
#define DDPRUN_ROW(name, functor_) DDPRUN_CASE(binary, name, functor_, arguments, count, a, b, out)
  switch (function) { DDPRUN_BINARY_FUNCTORS(DDPRUN_ROW) }
#undef DDPRUN_ROW
}

void run_binary_gradient(functor::Binary function, const Arguments& arguments, int operand, std::int64_t count,
                         const float* a, const float* b, const float* grad, float* out) {
#define DDPRUN_ROW(name, functor_) \
  DDPRUN_CASE(binary_gradient, name, functor_, arguments, operand, count, a, b, grad, out)
  switch (function) { DDPRUN_BINARY_FUNCTORS(DDPRUN_ROW) }
#undef DDPRUN_ROW
}

}  // namespace ddprun::test
