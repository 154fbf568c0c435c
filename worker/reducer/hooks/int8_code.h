#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddprun {

// Floats as 8-bit integers with a scale for each piece of them: value = scale * integer, with the largest magnitude of
// the piece at 127. A piece with a value that is not finite decodes to NaN.
//
// A code is the scales of its pieces (float32), then the integers of all; as many bytes as code_bytes() says.
std::size_t code_bytes(std::span<const std::size_t> pieces);
// pieces: their sizes in elements, adjacent. values: all of them.
void encode_int8(std::span<const std::size_t> pieces, const float* values, std::byte* code);
void decode_int8(std::span<const std::size_t> pieces, const std::byte* code, float* values);
// values += what the code says
void add_int8(std::span<const std::size_t> pieces, const std::byte* code, float* values);

}  // namespace ddprun
