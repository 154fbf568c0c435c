// The formats of elements in memory and in computation, one at a time and a vector at a time. They have internal
// linkage, like loops.h.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/dtype.h"
#include "common/float16.h"

namespace ddprun::comm {
namespace {

// The vector size of this kind of processor: a larger vector would be split and pass through the stack.
#if defined(__AVX512F__)
constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t vector_bytes = 32;
#else
constexpr std::size_t vector_bytes = 16;
#endif
template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(vector_bytes)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

// Loads an element from memory that may be unaligned.
template <class T>
T element(const T* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void put_element(T* at, T value) {
  __builtin_memcpy(at, &value, sizeof value);
}

template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static constexpr bool computed_as_stored = true;
  static T load(T stored) { return stored; }
  static T store(T value) { return value; }
  static Vector<T> load_vector(const T* stored) {
    Vector<T> values;
    __builtin_memcpy(&values, stored, sizeof values);
    return values;
  }
  static void store_vector(T* stored, const Vector<T>& values) { __builtin_memcpy(stored, &values, sizeof values); }
};

// Its values are computed as float32.
struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr bool computed_as_stored = false;
  static float load(std::uint16_t stored) { return float_from_float16(stored); }
  static std::uint16_t store(float value) { return float16_from_float(value); }

#if defined(__AVX512F__)
  static Vector<float> load_vector(const std::uint16_t* stored) {
    return bits_as<Vector<float>>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(stored))));
  }
  static void store_vector(std::uint16_t* stored, const Vector<float>& values) {
    const auto halves = _mm512_maskz_cvtps_ph(0xffff, bits_as<__m512>(values), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(stored), halves);
  }
#elif defined(__AVX2__) && defined(__F16C__)
  static Vector<float> load_vector(const std::uint16_t* stored) {
    return bits_as<Vector<float>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stored))));
  }
  static void store_vector(std::uint16_t* stored, const Vector<float>& values) {
    const auto halves = _mm256_cvtps_ph(bits_as<__m256>(values), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(stored), halves);
  }
#else
  static Vector<float> load_vector(const std::uint16_t* stored) {
    Vector<float> values;
    for (std::size_t i = 0; i < sizeof values / sizeof(float); ++i) values[i] = load(element(stored + i));
    return values;
  }
  static void store_vector(std::uint16_t* stored, const Vector<float>& values) {
    for (std::size_t i = 0; i < sizeof values / sizeof(float); ++i) put_element(stored + i, store(values[i]));
  }
#endif
};

struct BFloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr bool computed_as_stored = false;
  static float load(std::uint16_t stored) { return float_from_bfloat16(stored); }
  static std::uint16_t store(float value) { return bfloat16_from_float(value); }

  static Vector<float> load_vector(const std::uint16_t* stored) {
    Halves halves;
    __builtin_memcpy(&halves, stored, sizeof halves);
    return bits_as<Vector<float>>(__builtin_convertvector(halves, Words) << 16);
  }
  // Rounds as bfloat16_from_float does.
  static void store_vector(std::uint16_t* stored, const Vector<float>& values) {
    const auto bits = bits_as<Words>(values);
    const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, not_a_number = (bits >> 16) | 0x40;
    const Words chosen = (bits & 0x7fffffff) > 0x7f800000 ? not_a_number : rounded;
    const auto halves = __builtin_convertvector(chosen, Halves);
    __builtin_memcpy(stored, &halves, sizeof halves);
  }

 private:
  using Words = Vector<std::uint32_t>;
  typedef std::uint16_t Halves __attribute__((vector_size(vector_bytes / 2)));
};

// Calls action(format) for elements of that type. Inlined, as with_function() is, and the action is not copied: written
// in small stores and copied by large loads, it would stall every small collective.
template <class Action>
[[gnu::always_inline]] inline void with_format(DType dtype, const Action& action) {
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

}  // namespace
}  // namespace ddprun::comm
