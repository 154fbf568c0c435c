#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/map.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using functor::Comparison;

struct Compare {
  Comparison comparison;

  template <class T>
  DDPRUN_HOST_DEVICE std::uint8_t operator()(T stored_a, T stored_b) const {
    const auto a = static_cast<ComputeType<T>>(stored_a), b = static_cast<ComputeType<T>>(stored_b);
    bool result = false;
    switch (comparison) {
#define DDPRUN_CASE(name, operation) \
  case Comparison::name:             \
    result = a operation b;          \
    break;
      DDPRUN_COMPARISONS(DDPRUN_CASE)
#undef DDPRUN_CASE
    }
    return static_cast<std::uint8_t>(result);
  }
};

struct Select {
  template <class Word>
  DDPRUN_HOST_DEVICE Word operator()(std::uint8_t chosen, Word a, Word b) const {
    return chosen != 0 ? a : b;
  }
};

}  // namespace

void compare(DeviceContext& device, Comparison comparison, const View& a, const View& b, const View& out) {
  visit_any(device, "compare", a.dtype,
            [&]<class T>() { map<std::uint8_t, T, T>(device, Compare{comparison}, out, a, b); });
}

void where(DeviceContext& device, const View& cond, const View& a, const View& b, const View& out) {
  visit_word(out.dtype, [&]<class Word>() { map<Word, std::uint8_t, Word, Word>(device, Select{}, out, cond, a, b); });
}

}  // namespace ddprun::cuda
