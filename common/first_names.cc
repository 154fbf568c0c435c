#include "common/first_names.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddprun {

std::string first_names(const std::vector<std::string>& names, std::size_t shown) {
  const std::size_t count = std::min(shown, names.size());
  const std::string text = fmt::format("{}", fmt::join(names.data(), names.data() + count, ", "));
  return names.size() > count ? fmt::format("{} and {} more", text, names.size() - count) : text;
}

}  // namespace ddprun
