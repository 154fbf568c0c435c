#pragma once

#include <cstdint>
#include <type_traits>

#include "common/host_device.h"

namespace ddprun::functor {

// The constants of a functor: a slope, an exponent, bounds. A functor that has some is constructed from them.
struct Arguments {
  double a = 0;
  double b = 0;
  double c = 0;
  double d = 0;
};

template <class Functor>
DDPRUN_HOST_DEVICE Functor make(const Arguments& arguments) {
  if constexpr (std::is_constructible_v<Functor, Arguments>)
    return Functor(arguments);
  else
    return Functor();
}

// The value that the gradient of a unary functor reads besides the gradient of the result.
enum class Saves : std::uint8_t { nothing, input, output };

}  // namespace ddprun::functor
