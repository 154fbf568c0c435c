#include "rendezvous/recovery/recovery_keys.h"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "rendezvous/progress/rank_record.h"

namespace ddprun {
namespace {

std::string key(std::int64_t round, std::string_view name) {
  return fmt::format("{}/recovery/{}", worker_prefix(round), name);
}

}  // namespace

std::string RecoveryKeys::able(std::string_view member) const {
  return key(round, fmt::format("report/able/{}", member));
}

std::string RecoveryKeys::lost(std::string_view member) const {
  return key(round, fmt::format("report/lost/{}", member));
}

std::string RecoveryKeys::members(std::uint64_t generation) const {
  return key(round, fmt::format("members/{}", generation));
}

std::string RecoveryKeys::newest() const {
  return key(round, "newest");
}

std::string RecoveryKeys::leaving() const {
  return key(round, "leaving");
}

std::string RecoveryKeys::over() const {
  return key(round, "over");
}

std::string RecoveryKeys::state_offer(std::uint64_t joined_in) const {
  return key(round, fmt::format("state/{}/offer", joined_in));
}

std::string RecoveryKeys::state_request(std::uint64_t generation, std::size_t number) const {
  return key(round, fmt::format("state/{}/requests/{}", generation, number));
}

std::string RecoveryKeys::groups() const {
  return key(round, "groups/");
}

std::string member_name(int rank, std::uint64_t joined_in) {
  return fmt::format("{}.{}", rank, joined_in);
}

bool joins_later(std::string_view member) {
  return !member.ends_with(".0");
}

std::string member_list(const std::vector<std::string>& members) {
  return fmt::format("{}", fmt::join(members, " "));
}

std::vector<std::string> parse_member_list(std::string_view text) {
  std::vector<std::string> members;
  while (!text.empty()) {
    const auto end = text.find(' ');
    members.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return members;
}

std::uint64_t parse_generation(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw make_error(Errc::protocol, "the store holds '{}' as a generation", text);
  return value;
}

}  // namespace ddprun
