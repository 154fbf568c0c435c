#include "worker/recovery/recovery_times.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/error.h"
#include "common/unique_fd.h"

namespace ddprun {
namespace {

std::int64_t microseconds(RecoveryTimes::Time time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::string to_json(const RecoveryTimes& t) {
  return fmt::format(
      R"({{"rank": {}, "generation": {}, "step": {}, "noticed_us": {}, "planned_us": {}, "formed_us": {}, )"
      R"("healed_us": {}, "ready_us": {}, "applied_us": {}}})",
      t.rank, t.generation, t.step, microseconds(t.noticed), microseconds(t.planned), microseconds(t.formed),
      microseconds(t.healed), microseconds(t.ready), microseconds(t.applied));
}

void append_recovery(const std::filesystem::path& file, const RecoveryTimes& times) {
  const auto line = to_json(times) + "\n";
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // A line is short enough to be written as a whole.
  if (!fd || ::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw make_error(Errc::io, "cannot write {}: {}", file.string(), errno_text(errno));
}

}  // namespace ddprun
