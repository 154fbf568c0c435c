#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/map.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using functor::Arguments;
using functor::Binary;

template <class F>
struct Value {
  Arguments arguments;

  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    using C = ComputeType<T>;
    return T(functor::make<F>(arguments)(static_cast<C>(a), static_cast<C>(b)));
  }
};

}  // namespace

void binary(DeviceContext& device, Binary function, const Arguments& arguments, const View& a, const View& b,
            const View& out) {
  visit_floating(device, "binary", out.dtype, [&]<class T>() {
    switch (function) {
#define DDPRUN_CASE(name, functor_) \
  case Binary::name:                \
    return map<T, T, T>(device, Value<functor::functor_>{arguments}, out, a, b);
      DDPRUN_BINARY_FUNCTORS(DDPRUN_CASE)
#undef DDPRUN_CASE
    }
  });
}

}  // namespace ddprun::cuda
