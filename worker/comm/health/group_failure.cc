#include "worker/comm/health/group_failure.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/ranges.h>

namespace ddprun::comm {
namespace {

// Returns one or more numbers that single spaces separate; nothing for any other text.
std::optional<std::vector<int>> numbers_in(std::string_view line) {
  std::vector<int> numbers;
  while (true) {
    const auto word = line.substr(0, line.find(' '));
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    numbers.push_back(number);
    if (word.size() == line.size()) return numbers;
    line.remove_prefix(word.size() + 1);
  }
}

}  // namespace

// The first line holds the code and the lost ranks.
std::string encode(const GroupFailure& failure) {
  const auto* const space = failure.lost.empty() ? "" : " ";
  return fmt::format("{}{}{}\n{}", static_cast<int>(failure.code), space, fmt::join(failure.lost, " "),
                     failure.message);
}

GroupFailure decode_group_failure(std::string_view text) {
  const auto line = text.substr(0, text.find('\n'));
  const auto numbers = numbers_in(line);
  if (!numbers || numbers->front() < 0 || numbers->front() > static_cast<int>(Errc::internal))
    return {Errc::peer_lost, std::string(text)};
  return {static_cast<Errc>(numbers->front()),
          std::string(text.substr(std::min(line.size() + 1, text.size()))),
          {numbers->begin() + 1, numbers->end()}};
}

GroupFailure failure_by_loss(int rank, const std::string& identity) {
  return {Errc::peer_lost,
          fmt::format("rank {} ({}) was lost: its process died or its connection broke", rank, identity),
          {rank}};
}

}  // namespace ddprun::comm
