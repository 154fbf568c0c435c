#include "ddprun/launcher/agent/requested_signals.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>

#include "ddprun/common/log.h"
#include "ddprun/common/signal_name.h"

namespace ddprun {

void act_on_expired(const ExpiredTimer& timer, WorkerGroup& group) {
  const auto name = fmt::format("the timer '{}' of process {} expired", timer.scope, timer.pid);
  const auto workers = group.workers();
  const auto owner = std::find_if(workers.begin(), workers.end(), [&](const WorkerStatus& worker) {
    return !worker.exit && (timer.pid == worker.pid || ::getsid(timer.pid) == worker.pid);
  });
  if (owner == workers.end())
    return log::warn("{}: the process is not one of this node's workers, no signal is sent", name);
  if (timer.signal_number == 0)
    return log::warn("{} (local rank {}): the timer names no signal", name, owner->local_rank);
  const auto signal = signal_name(timer.signal_number);
  log::error("{} (local rank {}): sending it {}", name, owner->local_rank, signal);
  group.note_signal(timer.pid, timer.signal_number,
                    fmt::format("its watchdog timer '{}' expired, and ddprun sent it {}", timer.scope, signal));
  ::kill(timer.pid, timer.signal_number);
}

}  // namespace ddprun
