#include "worker/checkpoint/helper_thread.h"

#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"

namespace ddprun::checkpoint {

std::thread start_helper_thread(const char* purpose, std::function<void()> body) {
  try {
    return start_signal_free_thread(std::move(body));
  } catch (const std::system_error& error) {
    throw make_error(Errc::io, "cannot start the thread that {}: {}", purpose, error.what());
  }
}

// On Linux the priority is that of the calling thread alone.
void take_low_priority() {
  constexpr int low = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), low);
}

}  // namespace ddprun::checkpoint
