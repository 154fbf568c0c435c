#include "launcher/cluster/node_list.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/error.h"
#include "rendezvous/membership/session_protocol.h"

namespace ddprun {
namespace {

constexpr std::size_t max_hosts = SessionLimits::nodes;

std::optional<int> number_of(std::string_view digits) {
  int value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc{} || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// Removes the text before the first comma outside brackets, and returns it.
std::string_view next_item(std::string_view& rest) {
  int depth = 0;
  std::size_t at = 0;
  for (; at < rest.size(); ++at) {
    if (rest[at] == '[') ++depth;
    if (rest[at] == ']') --depth;
    if (rest[at] == ',' && depth == 0) break;
  }
  const auto item = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return item;
}

class NodeList {
 public:
  explicit NodeList(std::string_view text) : text_(text) {}

  std::vector<std::string> expand() const {
    std::vector<std::string> hosts;
    if (text_.ends_with(',')) fail();
    for (auto rest = text_; !rest.empty();) {
      for (auto& host : expand_item(next_item(rest))) hosts.push_back(std::move(host));
      check_size(hosts.size());
    }
    if (hosts.empty()) fail();
    return hosts;
  }

 private:
  [[noreturn]] void fail() const {
    throw make_error(Errc::usage, "'{}' is not a node list: expected names and ranges, as in n[1-3,7],login2", text_);
  }
  void check_size(std::size_t size) const {
    if (size > max_hosts)
      throw make_error(Errc::usage, "'{}' names more than {} hosts, which no job can have", text_, max_hosts);
  }

  // "r[0-1]c[1-2]": each piece is combined with all texts before it.
  std::vector<std::string> expand_item(std::string_view item) const {
    std::vector<std::string> hosts{""};
    if (item.empty()) fail();
    while (!item.empty()) {
      const bool bracket = item.front() == '[';
      const auto end = item.find(bracket ? ']' : '[');
      if (bracket && end == std::string_view::npos) fail();
      const auto piece = item.substr(bracket ? 1 : 0, bracket ? end - 1 : end);
      if (!bracket && piece.find(']') != std::string_view::npos) fail();
      hosts = multiply(hosts, bracket ? expand_ranges(piece) : std::vector{std::string(piece)});
      item.remove_prefix(bracket ? end + 1 : piece.size());
    }
    return hosts;
  }

  std::vector<std::string> multiply(const std::vector<std::string>& heads,
                                    const std::vector<std::string>& tails) const {
    check_size(heads.size() * tails.size());
    std::vector<std::string> result;
    for (const auto& head : heads)
      for (const auto& tail : tails) result.push_back(head + tail);
    return result;
  }

  // "08-10,12": numbers are padded to the width of the range's first number.
  std::vector<std::string> expand_ranges(std::string_view ranges) const {
    std::vector<std::string> numbers;
    if (ranges.ends_with(',')) fail();
    while (!ranges.empty()) {
      const auto range = next_item(ranges);
      const auto dash = range.find('-');
      const auto first = range.substr(0, dash);
      const auto low = number_of(first);
      const auto high = dash == std::string_view::npos ? low : number_of(range.substr(dash + 1));
      if (!low || !high || *high < *low) fail();
      check_size(static_cast<std::size_t>(*high - *low) + 1);
      for (int number = *low; number <= *high; ++number)
        numbers.push_back(fmt::format("{:0{}}", number, static_cast<int>(first.size())));
    }
    if (numbers.empty()) fail();
    return numbers;
  }

  std::string_view text_;
};

}  // namespace

std::vector<std::string> expand_node_list(std::string_view text) {
  return NodeList(text).expand();
}

std::vector<int> expand_counts(std::string_view text) {
  const auto fail = [&] { return make_error(Errc::usage, "'{}' is not a list of counts, as in 2(x3),1", text); };
  std::vector<int> counts;
  if (text.empty() || text.ends_with(',')) throw fail();
  for (auto rest = text; !rest.empty();) {
    const auto item = next_item(rest);
    const auto bracket = item.find('(');
    const auto count = number_of(item.substr(0, bracket));
    std::optional<int> times = 1;
    if (bracket != std::string_view::npos) {
      const auto repeat = item.substr(bracket);
      times = repeat.starts_with("(x") && repeat.ends_with(')') ? number_of(repeat.substr(2, repeat.size() - 3))
                                                                : std::nullopt;
    }
    if (!count || !times || counts.size() + static_cast<std::size_t>(*times) > max_hosts) throw fail();
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace ddprun
