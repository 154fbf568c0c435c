#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/map.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using functor::Arguments;
using functor::Binary;

template <class F>
struct Gradient {
  Arguments arguments;
  int operand;  // the same for all elements: one kernel serves both

  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T stored_a, T stored_b, T stored_grad) const {
    using C = ComputeType<T>;
    const F f = functor::make<F>(arguments);
    const auto a = static_cast<C>(stored_a), b = static_cast<C>(stored_b), grad = static_cast<C>(stored_grad);
    return T(operand == 0 ? f.gradient_a(a, b, grad) : f.gradient_b(a, b, grad));
  }
};

}  // namespace

void binary_gradient(DeviceContext& device, Binary function, const Arguments& arguments, int operand, const View& a,
                     const View& b, const View& grad, const View& out) {
  visit_floating(device, "binary_gradient", out.dtype, [&]<class T>() {
    switch (function) {
#define DDPRUN_CASE(name, functor_) \
  case Binary::name:                \
    return map<T, T, T, T>(device, Gradient<functor::functor_>{arguments, operand}, out, a, b, grad);
      DDPRUN_BINARY_FUNCTORS(DDPRUN_CASE)
#undef DDPRUN_CASE
    }
  });
}

}  // namespace ddprun::cuda
