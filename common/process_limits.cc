#include "ddprun/common/process_limits.h"

#include <new>
#include <sys/resource.h>
#include <system_error>

#include <fmt/format.h>

namespace ddprun {
namespace {

rlim_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

std::string process_limits_text() {
  std::string text;
  if (const auto bytes = limit_of(RLIMIT_AS); bytes != RLIM_INFINITY)
    text += fmt::format("ulimit -v is {} KiB", bytes / 1024);
  if (const auto processes = limit_of(RLIMIT_NPROC); processes != RLIM_INFINITY)
    text += fmt::format("{}ulimit -u is {}", text.empty() ? "" : ", ", processes);
  return text.empty() ? text : " (" + text + ")";
}

std::string exception_text(const std::exception& exception) {
  const auto* system = dynamic_cast<const std::system_error*>(&exception);
  if (system && system->code() == std::errc::resource_unavailable_try_again)
    return fmt::format("cannot start a thread: {}{}", system->what(), process_limits_text());
  if (dynamic_cast<const std::bad_alloc*>(&exception)) return "cannot allocate memory" + process_limits_text();
  return exception.what();
}

}  // namespace ddprun
