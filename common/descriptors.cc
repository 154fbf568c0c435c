#include "common/descriptors.h"

#include <sys/resource.h>

namespace ddprun {

DescriptorLimit raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  const bool raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  return {.before = before, .now = raised ? limit.rlim_max : before};
}

}  // namespace ddprun
