#include "ddprun/worker/comm/reduce_kernels.h"

#include <cstdint>
#include <type_traits>

#include "ddprun/worker/comm/half.h"

namespace ddprun::comm {
namespace {

// How elements are kept in memory and computed with. Whole numbers are computed as unsigned, where overflow is defined.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};
struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored stored) { return float_from_float16(stored); }
  static Stored store(Value value) { return float16_from_float(value); }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored stored) { return float_from_bfloat16(stored); }
  static Stored store(Value value) { return bfloat16_from_float(value); }
};

template <class T>
T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class T>
T wrapping_multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class Format, class Combine>
void combine(void* output, const void* left, const void* right, std::size_t count, Combine function) {
  using Stored = typename Format::Stored;
  auto* out = static_cast<Stored*>(output);
  const auto* a = static_cast<const Stored*>(left);
  const auto* b = static_cast<const Stored*>(right);
  for (std::size_t i = 0; i < count; ++i) out[i] = Format::store(function(Format::load(a[i]), Format::load(b[i])));
}

template <class Format>
void reduce_as(ReduceOp op, void* output, const void* left, const void* right, std::size_t count) {
  using Value = typename Format::Value;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return combine<Format>(output, left, right, count, wrapping_add<Value>);
    case ReduceOp::product:
      return combine<Format>(output, left, right, count, wrapping_multiply<Value>);
    case ReduceOp::min:
      return combine<Format>(output, left, right, count, [](Value a, Value b) { return b < a ? b : a; });
    case ReduceOp::max:
      return combine<Format>(output, left, right, count, [](Value a, Value b) { return a < b ? b : a; });
  }
}

template <class Format>
void divide_as(void* data, std::size_t count, int divisor) {
  auto* values = static_cast<typename Format::Stored*>(data);
  const auto by = static_cast<typename Format::Value>(divisor);
  for (std::size_t i = 0; i < count; ++i) values[i] = Format::store(Format::load(values[i]) / by);
}

}  // namespace

void reduce(ReduceOp op, DType dtype, void* output, const void* left, const void* right, std::size_t count) {
  switch (dtype) {
    case DType::float32:
      return reduce_as<Plain<float>>(op, output, left, right, count);
    case DType::float64:
      return reduce_as<Plain<double>>(op, output, left, right, count);
    case DType::float16:
      return reduce_as<Float16>(op, output, left, right, count);
    case DType::bfloat16:
      return reduce_as<BFloat16>(op, output, left, right, count);
    case DType::int8:
      return reduce_as<Plain<std::int8_t>>(op, output, left, right, count);
    case DType::uint8:
      return reduce_as<Plain<std::uint8_t>>(op, output, left, right, count);
    case DType::int32:
      return reduce_as<Plain<std::int32_t>>(op, output, left, right, count);
    case DType::int64:
      return reduce_as<Plain<std::int64_t>>(op, output, left, right, count);
  }
}

void finish_reduction(ReduceOp op, Span values, int ranks) {
  if (op != ReduceOp::average) return;
  switch (values.dtype) {
    case DType::float32:
      return divide_as<Plain<float>>(values.data, values.count, ranks);
    case DType::float64:
      return divide_as<Plain<double>>(values.data, values.count, ranks);
    case DType::float16:
      return divide_as<Float16>(values.data, values.count, ranks);
    case DType::bfloat16:
      return divide_as<BFloat16>(values.data, values.count, ranks);
    default:
      return;  // refused before: an average of whole numbers
  }
}

}  // namespace ddprun::comm
