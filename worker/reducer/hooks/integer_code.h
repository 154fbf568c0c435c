#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddprun {

// Floats as integers of 8 or 4 bits with a scale for each piece of them: value = scale * integer, with the largest
// magnitude of the piece at 127, or at 7; or as their signs, the scale being the mean magnitude of the piece. A piece
// with a value that is not finite decodes to NaN.
//
// A code is the scales of its pieces (float32), then the integers of all, a piece beginning with a byte of its own; as
// many bytes as bytes() says.
class IntegerCode {
 public:
  enum class Bits { one = 1, four = 4, eight = 8 };
  explicit IntegerCode(Bits bits) : bits_(bits) {}

  // pieces: their sizes in elements, adjacent. values: all of them.
  std::size_t bytes(std::span<const std::size_t> pieces) const;
  void encode(std::span<const std::size_t> pieces, const float* values, std::byte* code) const;
  void decode(std::span<const std::size_t> pieces, const std::byte* code, float* values) const;
  // Adds to values what the code says.
  void add(std::span<const std::size_t> pieces, const std::byte* code, float* values) const;

 private:
  const Bits bits_;
};

}  // namespace ddprun
