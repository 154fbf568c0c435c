#include "ddprun/worker/comm/group_options.h"

#include <algorithm>

#include "ddprun/common/error.h"

namespace ddprun::comm {
namespace {

#ifdef DDPRUN_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

}  // namespace

void check(const GroupOptions& options) {
  const auto expect = [](bool right, std::string_view what, auto value, std::string_view wanted) {
    if (!right) throw make_error(Errc::usage, "a process group's {} cannot be {}: {}", what, value, wanted);
  };
  const auto milliseconds = [](std::chrono::milliseconds time) { return fmt::format("{} ms", time.count()); };
  expect(options.size >= 1, "size", options.size, "it has at least one rank");
  expect(options.rank >= 0 && options.rank < options.size, "rank", options.rank,
         fmt::format("of {}, they are 0 to {}", options.size, options.size - 1));
  expect(options.timeout.count() > 0, "timeout", milliseconds(options.timeout), "give 1 ms or more");
  expect(options.freeze_bound.count() >= 0, "freeze_bound", milliseconds(options.freeze_bound),
         "give 1 ms or more, or 0 to bear any silence");
  if (options.heartbeat)
    expect(options.heartbeat->count() > 0, "heartbeat", milliseconds(*options.heartbeat), "give 1 ms or more, or none");
  expect(options.lanes >= 1, "number of lanes", options.lanes, "give 1 or more");
  constexpr std::size_t page = 4096, most = std::size_t{1} << 30;
  expect(options.staging_bytes % page == 0 && options.staging_bytes >= page && options.staging_bytes <= most,
         "staging_bytes", options.staging_bytes, fmt::format("give a multiple of {}, {} at most", page, most));
}

bool compares_calls(const GroupOptions& options) {
  return options.checked.value_or(debug_build);
}

std::chrono::milliseconds heartbeat_of(const GroupOptions& options) {
  using std::chrono::milliseconds;
  const auto bound = options.freeze_bound.count() > 0 ? options.freeze_bound / 5 : milliseconds(1000);
  return options.heartbeat.value_or(
      std::clamp(std::min(options.timeout / 10, bound), milliseconds(20), milliseconds(1000)));
}

}  // namespace ddprun::comm
