#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <nccl.h>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/backends/nccl/cuda_resources.h"

namespace ddprun::comm {

// A non-blocking communicator of NCCL: no call of it waits inside the library, so that what waits here sees an
// interruption, the deadline, and the errors that NCCL meets on its own. Thread-safe, but for its forming.
class Communicator {
 public:
  explicit Communicator(const std::atomic<bool>& interrupted) : interrupted_(interrupted) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // Every rank, with the id that one of them made, on its current device.
  void connect(const ncclUniqueId& id, int rank, int size, Deadline deadline);
  // Every rank of parent's that is not excluded; the others keep their order. Nothing of the parent is under way.
  // REQUIRES parent.can_shrink().
  void shrink(Communicator& parent, std::vector<int> excluded, Deadline deadline);
  bool can_shrink() const;

  // Gives NCCL a call, which puts work on a stream, and returns once it is taken.
  void issue(const std::function<ncclResult_t(ncclComm_t)>& call, Deadline deadline);
  // Until the event is reached; false when the deadline passed first.
  bool await(const Event& event, Deadline deadline);
  // A goodbye: what this rank is done with may still be on its way to others. After the deadline they are on their own.
  void finish(Deadline deadline) noexcept;
  // Ends what is under way, undone; after interrupted was set. A communicator that NCCL can revoke may still shrink.
  void stop() noexcept;

 private:
  ncclComm_t usable() const;
  bool revoked();
  bool taken() const;
  void await_taken(Deadline deadline) const;
  template <class Condition>
  bool poll(Deadline deadline, Condition condition) const;

  const std::atomic<bool>& interrupted_;
  mutable std::mutex mutex_;  // NCCL takes one call at a time
  ncclComm_t comm_ = nullptr;
  bool formed_ = false;
  bool stopped_ = false;
};

}  // namespace ddprun::comm
