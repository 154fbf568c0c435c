#include "ddprun/worker/comm/reduce_kernels.h"

#include <algorithm>
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

// The function for whole numbers. Floats were refused before: theirs only has to compile.
template <class Value, class Function>
auto whole_numbers(Function function) {
  return [function](Value a, [[maybe_unused]] Value b) {
    if constexpr (std::is_integral_v<Value>) {
      return static_cast<Value>(function(a, b));
    } else {
      return a;
    }
  };
}

// Calls action with the function that op is on values of type Value.
template <class Value, class Action>
void with_function(ReduceOp op, Action action) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      return action([](Value a, Value b) { return wrapping_add(a, b); });
    case ReduceOp::product:
      return action([](Value a, Value b) { return wrapping_multiply(a, b); });
    case ReduceOp::min:
      return action([](Value a, Value b) { return b < a ? b : a; });
    case ReduceOp::max:
      return action([](Value a, Value b) { return a < b ? b : a; });
    case ReduceOp::bit_and:
      return action(whole_numbers<Value>([](auto a, auto b) { return a & b; }));
    case ReduceOp::bit_or:
      return action(whole_numbers<Value>([](auto a, auto b) { return a | b; }));
    case ReduceOp::bit_xor:
      return action(whole_numbers<Value>([](auto a, auto b) { return a ^ b; }));
  }
}

// Calls action with the format in which elements of dtype are kept.
template <class Action>
void with_format(DType dtype, Action action) {
  switch (dtype) {
    case DType::float32:
      return action(Plain<float>());
    case DType::float64:
      return action(Plain<double>());
    case DType::float16:
      return action(Float16());
    case DType::bfloat16:
      return action(BFloat16());
    case DType::int8:
      return action(Plain<std::int8_t>());
    case DType::uint8:
      return action(Plain<std::uint8_t>());
    case DType::int32:
      return action(Plain<std::int32_t>());
    case DType::int64:
      return action(Plain<std::int64_t>());
  }
}

template <class Format, class Function>
void combine(void* output, const void* left, const void* right, std::size_t count, Function function) {
  using Stored = typename Format::Stored;
  auto* out = static_cast<Stored*>(output);
  const auto* a = static_cast<const Stored*>(left);
  const auto* b = static_cast<const Stored*>(right);
  for (std::size_t i = 0; i < count; ++i) out[i] = Format::store(function(Format::load(a[i]), Format::load(b[i])));
}

// In blocks that stay in the first-level cache, so that each input is read once and the output written once.
template <class Format, class Function>
void combine_all(void* output, std::span<const void* const> inputs, std::size_t count, Function function) {
  using Stored = typename Format::Stored;
  constexpr std::size_t block = 1024;
  typename Format::Value sums[block];
  for (std::size_t first = 0; first < count; first += block) {
    const auto n = std::min(block, count - first);
    const auto* initial = static_cast<const Stored*>(inputs[0]) + first;
    for (std::size_t i = 0; i < n; ++i) sums[i] = Format::load(initial[i]);
    for (const void* each : inputs.subspan(1)) {
      const auto* values = static_cast<const Stored*>(each) + first;
      for (std::size_t i = 0; i < n; ++i) sums[i] = function(sums[i], Format::load(values[i]));
    }
    auto* out = static_cast<Stored*>(output) + first;
    for (std::size_t i = 0; i < n; ++i) out[i] = Format::store(sums[i]);
  }
}

template <class Format>
void multiply_as(void* output, const void* input, std::size_t count, double factor) {
  auto* out = static_cast<typename Format::Stored*>(output);
  const auto* values = static_cast<const typename Format::Stored*>(input);
  const auto by = static_cast<typename Format::Value>(factor);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = Format::store(static_cast<typename Format::Value>(Format::load(values[i]) * by));
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
  with_format(dtype, [&]<class Format>(Format) {
    with_function<typename Format::Value>(
        op, [&](auto function) { combine<Format>(output, left, right, count, function); });
  });
}

void reduce_all(ReduceOp op, DType dtype, void* output, std::span<const void* const> inputs, std::size_t count) {
  if (inputs.size() == 2) return reduce(op, dtype, output, inputs[0], inputs[1], count);
  with_format(dtype, [&]<class Format>(Format) {
    with_function<typename Format::Value>(op,
                                          [&](auto function) { combine_all<Format>(output, inputs, count, function); });
  });
}

bool needs_preparation(ReduceOp op) {
  return op == ReduceOp::premultiplied_sum;
}

void prepare_reduction(double factor, ConstSpan input, void* output) {
  with_format(input.dtype, [&]<class Format>(Format) { multiply_as<Format>(output, input.data, input.count, factor); });
}

void finish_reduction(ReduceOp op, Span values, int ranks) {
  if (op != ReduceOp::average) return;  // an average of whole numbers was refused before
  with_format(values.dtype, [&]<class Format>(Format) { divide_as<Format>(values.data, values.count, ranks); });
}

}  // namespace ddprun::comm
