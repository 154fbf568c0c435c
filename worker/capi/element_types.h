#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/dtype.h"
#include "worker/capi/ddprun.h"
#include "worker/comm/reduction.h"

// PyTorch's types of elements, by the numbers of c10::ScalarType, in terms of the library's.
namespace ddprun::capi {

// Returns the name that PyTorch's messages use, such as Float.
std::string name_of_type(std::int32_t type);

// Returns the type to which the caller converts elements before a reduction; the type itself if it need not.
std::int32_t reduced_as(std::int32_t type);

// The type and the number of the library's elements that stand for one element of a tensor.
struct Units {
  DType dtype;
  std::size_t count;
};

// Returns them for operations that move elements and do not look at them: a type of the same size stands for one that
// the library lacks.
Units moved_units(std::int32_t type, std::int32_t element_bytes);

// The reduction of elements of one type, which the caller has converted as reduced_as() says.
struct Encoding {
  Units units;
  Reduction reduction;
  bool flips_highest_bit = false;  // the order of unsigned numbers is that of signed ones with the highest bit flipped
  bool divides = false;            // the library sums integers, and the average is computed afterwards
};

// Throws Errc::usage or Errc::unsupported where the type has no such reduction.
Encoding encoding_of(std::int32_t type, const ddprun_reduction& reduction);

}  // namespace ddprun::capi
