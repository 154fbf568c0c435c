#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/map.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using functor::Arguments;
using functor::Unary;

template <class F>
struct Value {
  Arguments arguments;

  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return T(functor::make<F>(arguments)(static_cast<ComputeType<T>>(x)));
  }
};

template <class F>
struct Gradient {
  Arguments arguments;

  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T saved, T grad) const {
    using C = ComputeType<T>;
    const F f = functor::make<F>(arguments);
    // The CPU multiplies by a derivative that it has in a table: the same bits need the same two roundings.
    if constexpr (sizeof(T) == 2 && functor::has_transcendental_gradient<F>)
      return T(f.gradient(static_cast<C>(saved), C(1)) * static_cast<C>(grad));
    else
      return T(f.gradient(static_cast<C>(saved), static_cast<C>(grad)));
  }
};

}  // namespace

void unary(DeviceContext& device, Unary function, const Arguments& arguments, const View& x, const View& y) {
  visit_floating(device, "unary", x.dtype, [&]<class T>() {
    const std::int64_t count = element_count(x);
    switch (function) {
#define DDPRUN_CASE(name, functor_) \
  case Unary::name:                 \
    return map_dense(device, Value<functor::functor_>{arguments}, count, writable<T>(y), elements<T>(x));
      DDPRUN_UNARY_FUNCTORS(DDPRUN_CASE)
#undef DDPRUN_CASE
    }
  });
}

void unary_gradient(DeviceContext& device, Unary function, const Arguments& arguments, const View& saved,
                    const View& grad, const View& out) {
  visit_floating(device, "unary_gradient", grad.dtype, [&]<class T>() {
    const std::int64_t count = element_count(grad);
    // A function that saves nothing does not look at what is passed in its place.
    const T* from = elements<T>(saved.data != nullptr ? saved : grad);
    switch (function) {
#define DDPRUN_CASE(name, functor_) \
  case Unary::name:                 \
    return map_dense(device, Gradient<functor::functor_>{arguments}, count, writable<T>(out), from, elements<T>(grad));
      DDPRUN_UNARY_FUNCTORS(DDPRUN_CASE)
#undef DDPRUN_CASE
    }
  });
}

}  // namespace ddprun::cuda
