#include "launcher/output/stream_spec.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/error.h"

namespace ddprun {
namespace {

std::optional<Streams> parse_digit(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

std::optional<int> parse_rank(std::string_view text) {
  int rank = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (text.empty() || status != std::errc{} || end != text.data() + text.size() || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace

StreamSpec StreamSpec::parse(std::string_view text, std::string_view option) {
  const auto refuse = [&] {
    return make_error(Errc::usage,
                      "--{} = {}: expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or RANK:N[,RANK:N...]", option,
                      text);
  };
  StreamSpec spec;
  if (const auto all = parse_digit(text)) {
    spec.all_ = *all;
    return spec;
  }
  for (auto rest = text;;) {
    const auto comma = rest.find(',');
    const auto item = rest.substr(0, comma);
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) throw refuse();
    const auto rank = parse_rank(item.substr(0, colon));
    const auto streams = parse_digit(item.substr(colon + 1));
    if (!rank || !streams) throw refuse();
    spec.by_rank_[*rank] = *streams;
    if (comma == std::string_view::npos) return spec;
    rest.remove_prefix(comma + 1);
  }
}

Streams StreamSpec::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

bool StreamSpec::any() const {
  const auto set = [](const Streams& s) { return s.out || s.err; };
  return set(all_) ||
         std::any_of(by_rank_.begin(), by_rank_.end(), [&](const auto& entry) { return set(entry.second); });
}

}  // namespace ddprun
