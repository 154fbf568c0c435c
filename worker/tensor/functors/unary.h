#pragma once

#include <cstdint>

#include "worker/tensor/functors/activations.h"
#include "worker/tensor/functors/elementary.h"
#include "worker/tensor/functors/fake_quantize.h"

// Functions of one element, each with its gradient: gradient(saved, grad) is grad times the derivative, where saved is
// the input or the output, as `saves` says. T is the type of computation: float or double. To add one: its struct in
// the header of its topic, and its row in DDPRUN_UNARY_FUNCTORS. `transcendental` and `transcendental_gradient` mark
// functions that cost more than a look-up in a table; such a function has no arguments.
namespace ddprun::functor {

template <class Functor>
constexpr bool has_transcendental_value = requires {
  requires Functor::transcendental;
};
template <class Functor>
constexpr bool has_transcendental_gradient = requires {
  requires Functor::transcendental_gradient;
};

// The rows of the table of unary functions: name, functor.
// clang-format off
#define DDPRUN_UNARY_FUNCTORS(row) \
  row(scale, Scale) \
  row(shift, Shift) \
  row(abs, Abs) \
  row(exp, Exp) \
  row(log, Log) \
  row(sqrt, Sqrt) \
  row(pow, Pow) \
  row(clamp, Clamp) \
  row(relu, Relu) \
  row(tanh, Tanh) \
  row(sigmoid, Sigmoid) \
  row(silu, Silu) \
  row(gelu, Gelu) \
  row(gelu_tanh, GeluTanh) \
  row(fake_quantize, FakeQuantize)
  // clang-format on

#define DDPRUN_FUNCTOR_NAME(name, functor) name,
enum class Unary : std::uint8_t { DDPRUN_UNARY_FUNCTORS(DDPRUN_FUNCTOR_NAME) };
#undef DDPRUN_FUNCTOR_NAME

}  // namespace ddprun::functor
