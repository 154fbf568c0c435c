#include "ddprun/worker/comm/backends/nccl/communicator.h"

#include <chrono>
#include <dlfcn.h>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/backends/nccl/nccl_names.h"
#include "ddprun/worker/comm/backends/nccl/shrinking.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds quiet_bound(5);  // for the device to leave what is revoked
constexpr std::chrono::microseconds between_looks(50);

// Of the library that this runs with, which may be older than what it was compiled with; none where that has no such
// function.
template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Communicator::~Communicator() {
  if (comm_) ncclCommAbort(comm_);
}

void Communicator::connect(const ncclUniqueId& id, int rank, int size, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  auto config = non_blocking();
  check_nccl(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "forming the communicator");
  await_taken(deadline);
  formed_ = true;
}

bool Communicator::can_shrink() const {
#if DDPRUN_NCCL_HAS_SHRINK
  const std::lock_guard lock(mutex_);
  return comm_ && find<decltype(ncclCommShrink)>("ncclCommShrink") && knows_shrink(running_version());
#else
  return false;
#endif
}

#if DDPRUN_NCCL_HAS_SHRINK
// There is no communicator before the parent, which may still be at being revoked, is done with making it.
void Communicator::shrink(Communicator& parent, std::vector<int> excluded, Deadline deadline) {
  const std::scoped_lock lock(mutex_, parent.mutex_);
  const auto await_parent = [&] {
    auto state = ncclSuccess;
    const bool ready = poll(deadline, [&] {
      check_nccl(ncclCommGetAsyncError(parent.comm_, &state), "asking for errors");
      return state != ncclInProgress;
    });
    if (!ready) throw std::runtime_error("timed out");
    return state;
  };
  await_parent();
  auto config = non_blocking();
  auto* const call = find<decltype(ncclCommShrink)>("ncclCommShrink");
  check_nccl(
      call(parent.comm_, excluded.data(), static_cast<int>(excluded.size()), &comm_, &config, NCCL_SHRINK_DEFAULT),
      "shrinking the communicator");
  const auto state = await_parent();
  if (!comm_) check_nccl(state == ncclSuccess ? ncclInternalError : state, "shrinking the communicator");
  await_taken(deadline);
  formed_ = true;
}
#else
void Communicator::shrink(Communicator&, std::vector<int>, Deadline) {
  throw Error(Errc::internal, "this build's NCCL cannot shrink a communicator");
}
#endif

void Communicator::issue(const std::function<ncclResult_t(ncclComm_t)>& call, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  check_nccl(call(usable()), "starting an operation");
  await_taken(deadline);
}

bool Communicator::await(const Event& event, Deadline deadline) try {
  return poll(deadline, [&] {
    const bool reached = event.reached();
    const std::lock_guard lock(mutex_);
    taken();  // throws what went wrong meanwhile: also of an event that was reached because of it
    return reached;
  });
} catch (...) {
  if (interrupted_) stop();
  throw;
}

void Communicator::finish(Deadline deadline) noexcept try {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  check_nccl(ncclCommFinalize(comm_), "ending the communicator");
  if (!poll(deadline, [this] { return taken(); })) return;
  ncclCommDestroy(comm_);
  comm_ = nullptr;
} catch (const std::exception& error) {
  log::debug("leaving a communicator: {}", error.what());
}

void Communicator::stop() noexcept try {
  const std::lock_guard lock(mutex_);
  if (!comm_ || std::exchange(stopped_, true) || revoked()) return;
  ncclCommAbort(std::exchange(comm_, nullptr));
} catch (const std::exception& error) {
  log::debug("stopping a communicator: {}", error.what());
}

// Whether the device has left all of it, and it may still shrink; else it can only be aborted.
bool Communicator::revoked() {
  if (!formed_) return false;
#if DDPRUN_NCCL_HAS_REVOKE
  auto* const revoke = find<decltype(ncclCommRevoke)>("ncclCommRevoke");
  if (!revoke) return false;
  auto state = revoke(comm_, NCCL_REVOKE_DEFAULT);
  for (const auto deadline = Deadline::in(quiet_bound); state == ncclInProgress && !deadline.expired();) {
    std::this_thread::sleep_for(between_looks);
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
#else
  return false;
#endif
}

// Once it was stopped it is of use to nobody but a shrink.
ncclComm_t Communicator::usable() const {
  if (interrupted_ || !comm_) throw std::runtime_error("interrupted");
  return comm_;
}

void Communicator::await_taken(Deadline deadline) const {
  if (!poll(deadline, [this] { return taken(); })) throw std::runtime_error("timed out");
}

// Whether NCCL is done with the last call. Throws its asynchronous error.
bool Communicator::taken() const {
  auto state = ncclSuccess;
  auto* const comm = usable();
  check_nccl(ncclCommGetAsyncError(comm, &state), "asking for errors");
  check_nccl(state, ncclGetLastError(comm));
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
      std::this_thread::sleep_for(between_looks);
    }
  }
  return true;
}

}  // namespace ddprun::comm
