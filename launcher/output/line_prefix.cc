#include "launcher/output/line_prefix.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace ddprun {
namespace {

// The name at the start of text, with its braces if it has any: "{rank}" or "rank"; empty when there is none.
std::string_view placeholder_at(std::string_view text) {
  const auto of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  const bool braced = text.starts_with('{');
  const auto begin = text.begin() + (braced ? 1 : 0);
  const auto end = std::find_if_not(begin, text.end(), of_name);
  const auto length = static_cast<std::size_t>(end - text.begin());
  if (!braced) return text.substr(0, length);
  return end != text.end() && *end == '}' ? text.substr(0, length + 1) : std::string_view{};
}

std::string_view bare(std::string_view placeholder) {
  if (placeholder.starts_with('{')) return placeholder.substr(1, placeholder.size() - 2);
  return placeholder;
}

}  // namespace

std::string line_prefix(std::string_view text, const PrefixValues& values) {
  const auto value_of = [&](std::string_view name) -> std::optional<std::string> {
    if (name == "role_name") return std::string(values.role);
    if (name == "local_rank") return std::to_string(values.local_rank);
    if (name == "rank") return std::to_string(values.rank);
    if (name == "hostname") return std::string(values.host);
    return std::nullopt;
  };
  std::string result;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c != '$') {
      result += c;
      continue;
    }
    const auto placeholder = placeholder_at(text);
    const auto value = value_of(bare(placeholder));
    if (value) {
      result += *value;
      text.remove_prefix(placeholder.size());
    } else {
      result += '$';
      if (text.starts_with('$')) text.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace ddprun
