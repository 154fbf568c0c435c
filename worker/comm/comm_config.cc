#include "worker/comm/comm_config.h"

#include <string_view>

#include "common/error.h"
#include "worker/comm/group_options.h"

namespace ddprun::comm {
namespace {

#ifdef DDPRUN_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

void expect(bool valid, std::string_view what, const auto& value, std::string_view wanted) {
  if (!valid) throw make_error(Errc::usage, "a process group's {} cannot be {}: {}", what, value, wanted);
}

}  // namespace

void check(const GroupOptions& options) {
  expect(options.size >= 1, "size", options.size, "it has at least one rank");
  expect(options.rank >= 0 && options.rank < options.size, "rank", options.rank,
         fmt::format("of {}, they are 0 to {}", options.size, options.size - 1));
  check(options.config);
}

std::chrono::milliseconds store_timeout_of(const GroupOptions& options) {
  const auto bound = options.config.freeze_bound;
  if (bound.count() == 0) return std::min(options.config.timeout, longest_timeout);
  const bool of_this_host = options.beside_store && !options.store_host;
  return std::min(of_this_host ? 10 * bound : bound, longest_timeout);
}

void check(const CommConfig& config) {
  const auto milliseconds = [](std::chrono::milliseconds time) { return fmt::format("{} ms", time.count()); };
  expect(config.timeout.count() > 0, "timeout", milliseconds(config.timeout), "give 1 ms or more");
  expect(config.freeze_bound.count() >= 0, "freeze_bound", milliseconds(config.freeze_bound),
         "give 1 ms or more, or 0 for no limit");
  if (config.heartbeat)
    expect(config.heartbeat->count() > 0, "heartbeat", milliseconds(*config.heartbeat), "give 1 ms or more, or none");
  expect(config.concurrency >= 1, "concurrency", config.concurrency, "give 1 or more");
  expect(config.label.find('\n') == std::string::npos, "label", "of several lines", "give one line");
  constexpr std::size_t page = 4096, most = std::size_t{1} << 30;
  expect(config.staging_bytes % page == 0 && config.staging_bytes >= page && config.staging_bytes <= most,
         "staging_bytes", config.staging_bytes, fmt::format("give a multiple of {}, {} at most", page, most));
}

bool compares_calls(const CommConfig& config) {
  return config.checked.value_or(debug_build);
}

std::chrono::milliseconds heartbeat_of(const CommConfig& config) {
  using std::chrono::milliseconds;
  const auto bound = config.freeze_bound.count() > 0 ? config.freeze_bound / 5 : milliseconds(1000);
  return config.heartbeat.value_or(
      std::clamp(std::min(config.timeout / 10, bound), milliseconds(20), milliseconds(1000)));
}

}  // namespace ddprun::comm
