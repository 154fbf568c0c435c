#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>

#include "common/error.h"
#include "worker/comm/backends/nccl/cuda_resources.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/operations/completion.h"

namespace ddprun::comm {

// A call on memory of a device that waits for its execution.
struct StagedTask {
  Call call;
  std::unique_ptr<Event> ready;  // the event that the call has to follow
  std::shared_ptr<Completion> work;
  std::chrono::milliseconds timeout;     // that of the device's work for one piece
  std::atomic<std::size_t>* unfinished;  // the group's count, which this task is part of until it ends

  // Called once. The group may be destroyed as soon as the work is done.
  void complete(int source = -1) const {
    --*unfinished;
    work->complete(source);
  }
  void fail(const Error& cause) const {
    --*unfinished;
    work->fail(cause);
  }
};

// The time for which a device may still copy once its operation has failed.
inline constexpr std::chrono::seconds copies_bound(2);

// Waits until nobody uses memory that a failed operation has passed to the host's group.
inline void await_end(const WorkPtr& work) noexcept {
  try {
    if (work) work->wait();
  } catch (const std::exception&) {
  }
}

[[noreturn]] inline void throw_copy_timeout(const Call& call, std::chrono::milliseconds timeout) {
  throw make_error(Errc::timeout,
                   "{}: the device has not executed the copies between it and the host, or what precedes them, within "
                   "{} ms",
                   describe(call.operation), timeout.count());
}

}  // namespace ddprun::comm
