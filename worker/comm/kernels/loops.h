// The loops over elements, which the compiler turns into the instructions of the processor that each including file is
// compiled for. Everything here has internal linkage and calls no function template of the standard library: a copy of
// one that uses new instructions must not become the one that the whole program calls.
#pragma once

#include <cstdint>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ddprun/worker/comm/kernels/half.h"
#include "ddprun/worker/comm/kernels/variant.h"

// The iterations do not depend on each other, although the output may be one of the inputs.
#if defined(__clang__)
#define DDPRUN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DDPRUN_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace ddprun::comm {
namespace {

// How elements are kept in memory and computed with.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static constexpr bool computed_as_stored = true;
};
struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr bool computed_as_stored = false;
  static void load(float* values, const std::uint16_t* stored, std::size_t count) {
    std::size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
      _mm512_storeu_ps(values + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(stored + i))));
#endif
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
      _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stored + i))));
#endif
    for (; i < count; ++i) values[i] = float_from_float16(stored[i]);
  }
  static void store(std::uint16_t* stored, const float* values, std::size_t count) {
    std::size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(stored + i),
                          _mm512_cvtps_ph(_mm512_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(stored + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < count; ++i) stored[i] = float16_from_float(values[i]);
  }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr bool computed_as_stored = false;
  static void load(float* values, const std::uint16_t* stored, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) values[i] = float_from_bfloat16(stored[i]);
  }
  static void store(std::uint16_t* stored, const float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) stored[i] = bfloat16_from_float(values[i]);
  }
};

// Whole numbers are added and multiplied as unsigned, where overflow is defined.
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
// For whole numbers: floats were refused before, theirs only has to compile.
template <class Function>
struct Bitwise {
  template <class T>
  T operator()(T a, [[maybe_unused]] T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(Function()(a, b));
    } else {
      return a;
    }
  }
};
struct And {
  template <class T>
  auto operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  auto operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  auto operator()(T a, T b) const {
    return a ^ b;
  }
};

template <class Action>
void with_function(ReduceOp op, Action action) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      return action(Add());
    case ReduceOp::product:
      return action(Multiply());
    case ReduceOp::min:
      return action(Min());
    case ReduceOp::max:
      return action(Max());
    case ReduceOp::bit_and:
      return action(Bitwise<And>());
    case ReduceOp::bit_or:
      return action(Bitwise<Or>());
    case ReduceOp::bit_xor:
      return action(Bitwise<Xor>());
  }
}

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

// Elements that are worked on at a time where they are converted or there are many inputs: they stay in the first-level
// cache.
constexpr std::size_t block = 1024;

std::size_t at_most_block(std::size_t count) {
  return count < block ? count : block;
}

template <class T, class Function>
void combine(T* out, const T* a, const T* b, std::size_t count, Function function) {
  DDPRUN_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = function(a[i], b[i]);
}

// To two outputs, each of which may be one of the inputs.
template <class T, class Function>
void combine_for_both(T* one, T* other, const T* a, const T* b, std::size_t count, Function function) {
  DDPRUN_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const T value = function(a[i], b[i]);
    one[i] = value;
    other[i] = value;
  }
}

// Through a block of its own: the output may be any of the inputs.
template <class Stored, class Function>
void reduce_as_stored(Stored* out, const void* const* inputs, std::size_t inputs_count, std::size_t count,
                      Function function) {
  const auto input = [&](std::size_t k) { return static_cast<const Stored*>(inputs[k]); };
  if (inputs_count == 2) return combine(out, input(0), input(1), count, function);
  Stored values[block];
  for (std::size_t first = 0; first < count; first += block) {
    const auto n = at_most_block(count - first);
    combine(values, input(0) + first, input(1) + first, n, function);
    for (std::size_t k = 2; k + 1 < inputs_count; ++k) combine(values, values, input(k) + first, n, function);
    combine(out + first, values, input(inputs_count - 1) + first, n, function);
  }
}

template <class Format, class Function>
void reduce_converted(std::uint16_t* out, const void* const* inputs, std::size_t inputs_count, std::size_t count,
                      Function function) {
  float values[block], other[block];
  for (std::size_t first = 0; first < count; first += block) {
    const auto n = at_most_block(count - first);
    Format::load(values, static_cast<const std::uint16_t*>(inputs[0]) + first, n);
    for (std::size_t k = 1; k < inputs_count; ++k) {
      Format::load(other, static_cast<const std::uint16_t*>(inputs[k]) + first, n);
      combine(values, values, other, n, function);
    }
    Format::store(out + first, values, n);
  }
}

void reduce_loops(ReduceOp op, DType dtype, void* output, const void* const* inputs, std::size_t inputs_count,
                  std::size_t count) {
  with_format(dtype, [&](auto format) {
    using Format = decltype(format);
    with_function(op, [&](auto function) {
      auto* const out = static_cast<typename Format::Stored*>(output);
      if constexpr (Format::computed_as_stored) {
        reduce_as_stored(out, inputs, inputs_count, count, function);
      } else {
        reduce_converted<Format>(out, inputs, inputs_count, count, function);
      }
    });
  });
}

// Calls change(value) on each element.
template <class Format, class Change>
void change_each(void* output, const void* input, std::size_t count, Change change) {
  using Stored = typename Format::Stored;
  auto* const out = static_cast<Stored*>(output);
  const auto* const in = static_cast<const Stored*>(input);
  if constexpr (Format::computed_as_stored) {
    DDPRUN_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) out[i] = change(in[i]);
  } else {
    float values[block];
    for (std::size_t first = 0; first < count; first += block) {
      const auto n = at_most_block(count - first);
      Format::load(values, in + first, n);
      for (std::size_t i = 0; i < n; ++i) values[i] = change(values[i]);
      Format::store(out + first, values, n);
    }
  }
}

// 16-bit floats become float32: what is added up later is to be rounded once.
void multiply_loops(DType dtype, void* output, const void* input, std::size_t count, double factor) {
  with_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using Value = typename Format::Value;
    const auto by = static_cast<Value>(factor);
    const auto multiplied = [by](Value value) { return static_cast<Value>(value * by); };
    if constexpr (Format::computed_as_stored) {
      change_each<Format>(output, input, count, multiplied);
    } else {
      auto* const values = static_cast<float*>(output);
      Format::load(values, static_cast<const std::uint16_t*>(input), count);
      change_each<Plain<float>>(values, values, count, multiplied);
    }
  });
}

void round_loops(DType dtype, void* output, const float* values, std::size_t count) {
  auto* const out = static_cast<std::uint16_t*>(output);
  return dtype == DType::float16 ? Float16::store(out, values, count) : BFloat16::store(out, values, count);
}

void divide_loops(DType dtype, void* data, std::size_t count, int divisor) {
  with_format(dtype, [&](auto format) {
    using Value = typename decltype(format)::Value;
    const auto by = static_cast<Value>(divisor);
    change_each<decltype(format)>(data, data, count, [by](Value value) { return static_cast<Value>(value / by); });
  });
}

struct Mean {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Add()(a, b) / T{2});
  }
};

template <class Stored>
void reduce_both_as_stored(ReduceOp op, Stored* one, Stored* other, const Stored* a, const Stored* b,
                           std::size_t count) {
  if (op == ReduceOp::average) return combine_for_both(one, other, a, b, count, Mean());
  with_function(op, [&](auto function) { combine_for_both(one, other, a, b, count, function); });
}

// A loop of moves, not the C library's memcpy, which on some processors uses an instruction that is slow for memory
// that another one has just written.
void copy_loop(void* to, const void* from, std::size_t bytes) {
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  std::size_t i = 0;
#if defined(__AVX512F__)
  for (; i + 64 <= bytes; i += 64) _mm512_storeu_si512(out + i, _mm512_loadu_si512(in + i));
#elif defined(__AVX2__)
  for (; i + 32 <= bytes; i += 32)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)));
#endif
  __builtin_memcpy(out + i, in + i, bytes - i);
}

void copy_past_caches_loop(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  constexpr std::size_t line = 64;
  const auto ahead = (line - reinterpret_cast<std::uintptr_t>(out) % line) % line;
  if (bytes < ahead + line) return copy_loop(to, from, bytes);
  __builtin_memcpy(out, in, ahead);
  std::size_t i = ahead;
  for (; i + line <= bytes; i += line) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_loadu_si512(in + i));
#else
    for (std::size_t j = 0; j < line; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + j)));
#endif
  }
  _mm_sfence();  // such stores are ordered with nothing else
  __builtin_memcpy(out + i, in + i, bytes - i);
#else
  copy_loop(to, from, bytes);
#endif
}

void reduce_both_loops(ReduceOp op, DType dtype, void* const* outputs, const void* const* inputs, std::size_t count) {
  with_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using Stored = typename Format::Stored;
    auto* const one = static_cast<Stored*>(outputs[0]);
    auto* const other = static_cast<Stored*>(outputs[1]);
    if constexpr (Format::computed_as_stored) {
      reduce_both_as_stored(op, one, other, static_cast<const Stored*>(inputs[0]),
                            static_cast<const Stored*>(inputs[1]), count);
    } else {
      reduce_loops(op, dtype, one, inputs, 2, count);
      if (op == ReduceOp::average) divide_loops(dtype, one, count, 2);
      copy_loop(other, one, count * sizeof(Stored));
    }
  });
}

constexpr KernelVariant variant(const char* name, bool (*supported)()) {
  return {name,        supported,    reduce_loops, reduce_both_loops,    multiply_loops,
          round_loops, divide_loops, copy_loop,    copy_past_caches_loop};
}

}  // namespace
}  // namespace ddprun::comm
