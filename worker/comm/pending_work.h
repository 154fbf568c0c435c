#pragma once

#include <utility>

#include "common/error.h"
#include "worker/comm/work.h"

namespace ddprun {

// An operation on memory of the scope that has it, or none. It is awaited also when an exception leaves the scope,
// since the group reads or writes the memory until then. Declared after the memory.
//
// Threads: one at a time. Errors: wait() throws that of the operation.
class PendingWork {
 public:
  PendingWork() = default;
  ~PendingWork() {
    try {
      wait();
    } catch (const Error&) {
      // The exception under way says more.
    }
  }
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  // REQUIRES: no operation is pending.
  void start(WorkPtr work) { work_ = std::move(work); }
  bool started() const { return work_ != nullptr; }
  // Does nothing if none is pending.
  void wait() {
    if (const auto work = std::exchange(work_, nullptr)) work->wait();
  }

 private:
  WorkPtr work_;
};

}  // namespace ddprun
