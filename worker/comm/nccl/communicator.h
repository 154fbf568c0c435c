#pragma once

#include <atomic>
#include <functional>
#include <nccl.h>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/nccl/cuda_resources.h"

namespace ddprun::comm {

// A non-blocking communicator of NCCL: no call of it waits inside the library, so that what waits here sees an
// interruption, the deadline, and the errors that NCCL meets on its own. Used from one thread at a time; after a throw,
// of nothing else but its destructor.
class Communicator {
 public:
  explicit Communicator(const std::atomic<bool>& interrupted) : interrupted_(interrupted) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Aborts: a destroy waits for ranks that may be gone.
  ~Communicator();

  // Every rank, with the id that one of them made, on its current device.
  void connect(const ncclUniqueId& id, int rank, int size, Deadline deadline);
  // Gives NCCL a call, which puts work on a stream, and returns once it is taken.
  void issue(const std::function<ncclResult_t(ncclComm_t)>& call, Deadline deadline);
  // Until the event is reached; false when the deadline passed first.
  bool await(const Event& event, Deadline deadline);

 private:
  bool taken() const;
  void await_taken(Deadline deadline) const;
  template <class Condition>
  bool poll(Deadline deadline, Condition condition) const;

  const std::atomic<bool>& interrupted_;
  ncclComm_t comm_ = nullptr;
};

void check_nccl(ncclResult_t result, const char* what);

}  // namespace ddprun::comm
