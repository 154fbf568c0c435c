#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

// Sizes of a tensor's dimensions, outermost first; empty for a scalar.
using Shape = std::vector<std::int64_t>;

// Number of elements; 1 for a scalar. Throws Errc::usage for a negative size.
std::int64_t numel(const Shape& shape);

// "[64, 1, 28, 28]"
std::string to_string(const Shape& shape);

}  // namespace ddprun
