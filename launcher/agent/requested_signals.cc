#include "launcher/agent/requested_signals.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "common/signal_name.h"

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
  group.record_signal(timer.pid, timer.signal_number,
                      fmt::format("its watchdog timer '{}' expired, and ddprun sent it {}", timer.scope, signal));
  ::kill(timer.pid, timer.signal_number);
}

std::string send_requested_signal(WorkerGroup& group, int local_rank, const RequestedSignal& signal) {
  const auto workers = group.workers();
  const auto worker = std::ranges::find(workers, local_rank, &WorkerStatus::local_rank);
  if (worker == workers.end() || worker->exit) return "its worker does not run";
  const auto name = signal_name(signal.number);
  const auto why = signal.why.empty() ? "" : signal.why + "; ";
  group.record_signal(worker->pid, signal.number, fmt::format("{}{} sent it {}", why, signal.who, name));
  if (::kill(worker->pid, signal.number) != 0) return errno_text(errno);
  log::info("{} sent {} to the worker of local rank {} (pid {})", signal.who, name, local_rank, worker->pid);
  return "";
}

}  // namespace ddprun
