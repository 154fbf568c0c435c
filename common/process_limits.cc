#include "common/process_limits.h"

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

std::string memory_limit() {
  const auto bytes = limit_of(RLIMIT_AS);
  return bytes == RLIM_INFINITY ? "" : fmt::format("ulimit -v is {} KiB", bytes / 1024);
}

std::string in_parentheses(const std::string& text) {
  return text.empty() ? text : " (" + text + ")";
}

}  // namespace

std::string process_limits_text() {
  std::string text = memory_limit();
  if (const auto processes = limit_of(RLIMIT_NPROC); processes != RLIM_INFINITY)
    text += fmt::format("{}ulimit -u is {}", text.empty() ? "" : ", ", processes);
  return in_parentheses(text);
}

std::string exception_text(const std::exception& exception) {
  const auto* system = dynamic_cast<const std::system_error*>(&exception);
  if (system && system->code() == std::errc::resource_unavailable_try_again)
    return fmt::format("cannot start a thread: {}{}", system->what(), process_limits_text());
  if (dynamic_cast<const std::bad_alloc*>(&exception)) return "cannot allocate memory" + in_parentheses(memory_limit());
  return exception.what();
}

}  // namespace ddprun
