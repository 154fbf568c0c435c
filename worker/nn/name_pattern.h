#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::nn {

// Returns whether a pattern means a parameter or a buffer of a module: its path, "layer1.0.conv1.weight", or that of a
// module above it, "layer1". '*' stands for any text, dots included, '?' for a character, "[0-3]" for one of several.
bool matches(const std::string& pattern, std::string_view path);
bool matches_any(const std::vector<std::string>& patterns, std::string_view path);

}  // namespace ddprun::nn
