#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"

// Elementary functions that vectorize and give the same bits at every vector width and on every device: polynomials
// with explicit fused multiply-add, and selections instead of branches. In float32 they are within 2 units in the last
// place of the exact value (tests/cuda/functors_test.cc). float64 is the oracle of the tests and uses libm.
// The float32 coefficients are those of Cephes (exp, log, tanh) and of N. Juffa's erff.
namespace ddprun::functor {

DDPRUN_HOST_DEVICE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
DDPRUN_HOST_DEVICE double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

template <class T>
DDPRUN_HOST_DEVICE bool is_nan(T x) {
  return __builtin_isnan(x);
}

// 2^exponent for -126 <= exponent <= 127; infinite for 128
DDPRUN_HOST_DEVICE float power_of_two(std::int32_t exponent) {
  return __builtin_bit_cast(float, (exponent + 127) << 23);
}

// e^x = fraction * 2^exponent, the fraction about 1; for -104 <= x <= 89.
struct SplitExponential {
  float fraction;
  std::int32_t exponent;
};
DDPRUN_HOST_DEVICE SplitExponential split_exp(float x) {
  constexpr float log2_e = 1.44269504088896341F, ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;
  constexpr float to_integer = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = fma(x, log2_e, to_integer);
  const float n = shifted - to_integer;
  const float r = fma(-n, ln2_low, fma(-n, ln2_high, x));
  float p = 1.9875691500E-4F;
  p = fma(p, r, 1.3981999507E-3F);
  p = fma(p, r, 8.3334519073E-3F);
  p = fma(p, r, 4.1665795894E-2F);
  p = fma(p, r, 1.6666665459E-1F);
  p = fma(p, r, 5.0000001201E-1F);
  p = fma(p, r * r, r) + 1.0F;
  return {p, __builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, to_integer)};
}

DDPRUN_HOST_DEVICE float exp(float x) {
  const auto [p, exponent] = split_exp(x < -104.0F ? -104.0F : x > 89.0F ? 89.0F : x);
  // 2^n is computed in two factors, since by itself it may be infinite or subnormal where the result is neither.
  const std::int32_t half = exponent >> 1;
  const float result = p * power_of_two(half) * power_of_two(exponent - half);
  return is_nan(x) ? x : result;
}
DDPRUN_HOST_DEVICE double exp(double x) {
  return std::exp(x);
}

// e^x in a third fewer instructions: below -87 it is that of -87, and from 88.37 on infinite, so that it is a normal
// number or none.
DDPRUN_HOST_DEVICE float bounded_exp(float x) {
  const auto [p, exponent] = split_exp(x < -87.0F ? -87.0F : x > 89.0F ? 89.0F : x);
  return p * power_of_two(exponent);
}
DDPRUN_HOST_DEVICE double bounded_exp(double x) {
  return std::exp(x);
}
// e^x for the x of a softmax, of which none is above 0 but by rounding: zero where it would be no normal number.
DDPRUN_HOST_DEVICE float softmax_exp(float x) {
  const float result = bounded_exp(x);
  return x < -87.0F ? 0.0F : result;
}
DDPRUN_HOST_DEVICE double softmax_exp(double x) {
  return std::exp(x);
}

DDPRUN_HOST_DEVICE float log(float x) {
  constexpr float sqrt_half = 0.707106781186547524F;
  const bool subnormal = x < 0x1p-126F;
  const float normal = subnormal ? x * 0x1p23F : x;
  const auto bits = __builtin_bit_cast(std::int32_t, normal);
  // normal = m * 2^e with m in [sqrt(1/2), sqrt(2))
  std::int32_t e = (bits >> 23) - 126;
  float m = __builtin_bit_cast(float, (bits & 0x007fffff) | 0x3f000000);
  const bool low = m < sqrt_half;
  e = low ? e - 1 : e;
  m = (low ? m + m : m) - 1.0F;
  const auto n = static_cast<float>(subnormal ? e - 23 : e);
  const float z = m * m;
  float p = 7.0376836292E-2F;
  p = fma(p, m, -1.1514610310E-1F);
  p = fma(p, m, 1.1676998740E-1F);
  p = fma(p, m, -1.2420140846E-1F);
  p = fma(p, m, 1.4249322787E-1F);
  p = fma(p, m, -1.6668057665E-1F);
  p = fma(p, m, 2.0000714765E-1F);
  p = fma(p, m, -2.4999993993E-1F);
  p = fma(p, m, 3.3333331174E-1F);
  float y = p * m * z;
  y = fma(n, -2.12194440e-4F, y);
  y = fma(z, -0.5F, y);
  const float result = fma(n, 0.693359375F, m + y);
  const float not_positive = x == 0 ? -__builtin_inff() : __builtin_nanf("");
  const float positive = x == __builtin_inff() ? x : result;
  return x > 0 ? positive : is_nan(x) ? x : not_positive;
}
DDPRUN_HOST_DEVICE double log(double x) {
  return std::log(x);
}

DDPRUN_HOST_DEVICE float tanh(float x) {
  const float z = x * x;
  float p = -5.70498872745E-3F;
  p = fma(p, z, 2.06390887954E-2F);
  p = fma(p, z, -5.37397155531E-2F);
  p = fma(p, z, 1.33314422036E-1F);
  p = fma(p, z, -3.33332819422E-1F);
  const float near = fma(p * z, x, x);
  const float magnitude = x < 0 ? -x : x;
  const float far = 1.0F - 2.0F / (exp(magnitude + magnitude) + 1.0F);
  return magnitude < 0.625F ? near : x < 0 ? -far : far;
}
DDPRUN_HOST_DEVICE double tanh(double x) {
  return std::tanh(x);
}

DDPRUN_HOST_DEVICE float erf(float x) {
  const float t = x < 0 ? -x : x;
  const float s = x * x;
  float far = fma(fma(-1.72853470e-5F, t, 3.83197126e-4F), s, fma(-3.88396438e-3F, t, 2.42546219e-2F));
  far = fma(far, t, -1.06777877e-1F);
  far = fma(far, t, -6.34846687e-1F);
  far = fma(far, t, -1.28717512e-1F);
  far = fma(far, t, -t);
  far = 1.0F - exp(far);
  float near = -5.96761703e-4F;
  near = fma(near, s, 4.99119423e-3F);
  near = fma(near, s, -2.67681349e-2F);
  near = fma(near, s, 1.12819925e-1F);
  near = fma(near, s, -3.76125336e-1F);
  near = fma(near, s, 1.28379166e-1F);
  near = fma(near, x, x);
  return t > 0.927734375F ? (x < 0 ? -far : far) : near;
}
DDPRUN_HOST_DEVICE double erf(double x) {
  return std::erf(x);
}

DDPRUN_HOST_DEVICE float floor(float x) {
  return __builtin_floorf(x);
}
DDPRUN_HOST_DEVICE double floor(double x) {
  return __builtin_floor(x);
}

DDPRUN_HOST_DEVICE float sqrt(float x) {
  return __builtin_sqrtf(x);
}
DDPRUN_HOST_DEVICE double sqrt(double x) {
  return __builtin_sqrt(x);
}

template <class T>
DDPRUN_HOST_DEVICE T abs(T x) {
  return x < T(0) ? -x : x;
}

// 1 / (1 + e^-x), without overflow at either end.
template <class T>
DDPRUN_HOST_DEVICE T sigmoid(T x) {
  const T e = exp(-abs(x));
  const T r = T(1) / (T(1) + e);
  return x < T(0) ? e * r : r;
}

// x^exponent for x > 0; for x = 0 and for negative x it is that of libm's pow.
DDPRUN_HOST_DEVICE double pow(double x, double exponent) {
  return std::pow(x, exponent);
}
DDPRUN_HOST_DEVICE float pow(float x, float exponent) {
  return static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(exponent)));
}

}  // namespace ddprun::functor
