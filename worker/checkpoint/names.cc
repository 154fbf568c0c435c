#include "worker/checkpoint/names.h"

#include <charconv>

#include <fmt/format.h>

namespace ddprun::checkpoint {
namespace {

constexpr std::string_view step_prefix = "step_";
constexpr std::string_view part_prefix = "part_";

}  // namespace

std::string part_file(int rank) {
  return fmt::format("{}{:05}.safetensors", part_prefix, rank);
}

bool is_part_file(std::string_view name) {
  return name.starts_with(part_prefix);
}

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:06}", step_prefix, step);
}

std::optional<std::int64_t> step_of(const std::filesystem::path& folder) {
  const auto name = folder.filename().string();
  if (!name.starts_with(step_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto* begin = name.data() + step_prefix.size();
  const auto* end = name.data() + name.size();
  const auto [stop, status] = std::from_chars(begin, end, step);
  if (status != std::errc{} || stop != end || step < 0) return std::nullopt;
  return step;
}

}  // namespace ddprun::checkpoint
