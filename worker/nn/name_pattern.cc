#include "worker/nn/name_pattern.h"

#include <algorithm>
#include <fnmatch.h>

namespace ddprun::nn {

bool matches(const std::string& pattern, std::string_view path) {
  for (std::string_view above = path;;) {
    if (::fnmatch(pattern.c_str(), std::string(above).c_str(), 0) == 0) return true;
    const auto dot = above.rfind('.');
    if (dot == std::string_view::npos) return false;
    above = above.substr(0, dot);
  }
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view path) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, path); });
}

}  // namespace ddprun::nn
