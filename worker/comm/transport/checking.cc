#include "ddprun/worker/comm/transport/checking.h"

namespace ddprun::comm {
namespace {

#ifdef DDPRUN_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

}  // namespace

bool compares_calls(const GroupOptions& options) {
  return options.checked.value_or(debug_build);
}

}  // namespace ddprun::comm
