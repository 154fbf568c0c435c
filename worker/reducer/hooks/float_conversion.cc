#include "worker/reducer/hooks/float_conversion.h"

#include <cstring>

#include "common/error.h"
#include "common/float16.h"

namespace ddprun {
namespace {

template <class To, class From>
void convert_each(const From* from, std::size_t count, To* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

[[noreturn]] void refuse(DType dtype) {
  throw make_error(Errc::unsupported, "gradients of type {} cannot be compressed", name_of(dtype));
}

}  // namespace

void convert(ConstSpan from, float* to) {
  switch (from.dtype) {
    case DType::float32:
      std::memcpy(to, from.data, from.bytes());
      return;
    case DType::float64:
      return convert_each(static_cast<const double*>(from.data), from.count, to);
    case DType::float16:
      return convert_each(static_cast<const Float16*>(from.data), from.count, to);
    case DType::bfloat16:
      return convert_each(static_cast<const BFloat16*>(from.data), from.count, to);
    default:
      refuse(from.dtype);
  }
}

void convert(const float* from, Span to) {
  switch (to.dtype) {
    case DType::float32:
      std::memcpy(to.data, from, to.bytes());
      return;
    case DType::float64:
      return convert_each(from, to.count, static_cast<double*>(to.data));
    case DType::float16:
      return convert_each(from, to.count, static_cast<Float16*>(to.data));
    case DType::bfloat16:
      return convert_each(from, to.count, static_cast<BFloat16*>(to.data));
    default:
      refuse(to.dtype);
  }
}

}  // namespace ddprun
