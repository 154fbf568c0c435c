#include "ddprun/worker/comm/nccl/communicator.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "ddprun/common/error.h"

namespace ddprun::comm {

void check_nccl(ncclResult_t result, const char* what) {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw make_error(Errc::connection_lost, "NCCL: {}: {}", what, ncclGetErrorString(result));
  }
}

Communicator::~Communicator() {
  if (comm_) ncclCommAbort(comm_);
}

void Communicator::connect(const ncclUniqueId& id, int rank, int size, Deadline deadline) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check_nccl(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "forming the communicator");
  await_taken(deadline);
}

void Communicator::issue(const std::function<ncclResult_t(ncclComm_t)>& call, Deadline deadline) {
  check_nccl(call(comm_), "starting an operation");
  await_taken(deadline);
}

bool Communicator::await(const Event& event, Deadline deadline) {
  return poll(deadline, [&] {
    taken();  // throws what went wrong meanwhile
    return event.reached();
  });
}

void Communicator::await_taken(Deadline deadline) const {
  if (!poll(deadline, [this] { return taken(); })) throw std::runtime_error("timed out");
}

// Whether NCCL is done with the last call. Throws its asynchronous error.
bool Communicator::taken() const {
  auto state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &state), "asking for errors");
  check_nccl(state, ncclGetLastError(comm_));
  return state == ncclSuccess;
}

// False when the deadline passed first.
template <class Condition>
bool Communicator::poll(Deadline deadline, Condition condition) const {
  constexpr int yields = 2000;  // about a small operation's time
  for (int tries = 0; !condition(); ++tries) {
    if (interrupted_) throw std::runtime_error("interrupted");
    if (deadline.expired()) return false;
    if (tries < yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

}  // namespace ddprun::comm
