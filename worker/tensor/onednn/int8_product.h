#pragma once

#include <compare>
#include <cstdint>

namespace ddprun::onednn {

// Sizes of out (m, n) = a (m, k) b (n, k) transposed, row-major.
struct Int8Product {
  std::int64_t m, n, k;
  friend auto operator<=>(const Int8Product&, const Int8Product&) = default;
};

// The product is exact where a is at most 127. Primitives are made once for their sizes and kept, for each thread.
void multiply(const Int8Product& product, const std::uint8_t* a, const std::int8_t* b, std::int32_t* out);

}  // namespace ddprun::onednn
