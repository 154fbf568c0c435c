#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <nccl.h>
#include <vector>

#include "common/deadline.h"
#include "worker/comm/backends/nccl/cuda_resources.h"

namespace ddprun::comm {

// A function of NCCL that was called, and its result.
struct NcclCall {
  const char* function;
  ncclResult_t result;
  bool has_failed() const { return result != ncclSuccess && result != ncclInProgress; }
};

// A non-blocking NCCL communicator: no call waits inside the library, so that the waits here notice an interruption,
// the deadline and NCCL's asynchronous errors. References interrupted. Thread-safe, except connect() and shrink().
// Throws what check_nccl throws, and std::runtime_error when interrupted or past the deadline.
class Communicator {
 public:
  explicit Communicator(const std::atomic<bool>& interrupted) : interrupted_(interrupted) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // Called by every rank, with the ids that some of them made. Several ids need api().ncclCommInitRankScalable.
  // REQUIRES: the device is current.
  void connect(int device, std::vector<ncclUniqueId> ids, int rank, int size, Deadline deadline);
  // Called by every rank of the parent that is not excluded; they keep their order. The operations of a parent that was
  // stopped are ended first. The device is the parent's. REQUIRES: parent.can_shrink(), and no operation of another
  // parent is in progress.
  void shrink(Communicator& parent, std::vector<int> excluded, Deadline deadline);
  bool can_shrink() const;

  // Makes calls, which enqueue work on a stream, and returns once NCCL has accepted them.
  void issue(const std::function<NcclCall(ncclComm_t)>& calls, Deadline deadline);
  // Waits until the event is reached; false when the deadline passes first.
  bool await(const Event& event, Deadline deadline);
  // Finalizes: waits, until the deadline, for operations that are complete here but not yet at the peers.
  void finish(Deadline deadline) noexcept;
  // Registers memory from ncclMemAlloc, which operations then access without a copy in between where NCCL can. It is
  // removed before it is freed.
  void add_memory(void* memory, std::size_t bytes);
  void remove_memory(void* memory) noexcept;
  // Aborts it; the destructor does so, too.
  void close() noexcept;
  // Cancels the operations in progress and waits, for a second at most, until their stream is idle: the device no
  // longer uses their memory then. Where NCCL can revoke the communicator, it can still be shrunk; else it is aborted.
  // stream: null before there is one. REQUIRES: interrupted is set, or one of its operations has failed.
  void stop(const Stream* stream) noexcept;

 private:
  ncclComm_t usable() const;
  void cancel_operations();
  bool revoke();
  bool call_completed() const;
  void await_call(Deadline deadline) const;
  template <class Condition>
  bool poll(Deadline deadline, Condition condition) const;

  const std::atomic<bool>& interrupted_;
  mutable std::mutex mutex_;  // a communicator accepts one call at a time
  int device_ = 0;            // set once connected
  ncclComm_t comm_ = nullptr;
  std::map<void*, void*> registered_;  // the handle of each memory
  bool formed_ = false;
  bool stopped_ = false;
};

}  // namespace ddprun::comm
