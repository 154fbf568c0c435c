#include "ddprun/worker/comm/backends/nccl/communicator.h"

#include <chrono>
#include <dlfcn.h>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/backends/nccl/nccl_types.h"
#include "ddprun/worker/comm/backends/nccl/shrink.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds revoke_timeout(5);
constexpr std::chrono::microseconds poll_interval(50);

// A function of the library at run time; null where that is older than the headers of this build and lacks it.
template <class Function>
Function* find_function(const char* name) {
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
  check_nccl(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "creating the communicator");
  await_call(deadline);
  formed_ = true;
}

bool Communicator::can_shrink() const {
#if DDPRUN_NCCL_HAS_SHRINK
  const std::lock_guard lock(mutex_);
  return comm_ && find_function<decltype(ncclCommShrink)>("ncclCommShrink") && version_has_shrink(runtime_version());
#else
  return false;
#endif
}

#if DDPRUN_NCCL_HAS_SHRINK
// The parent may still be being revoked; the new communicator exists once the parent has completed this call, too.
void Communicator::shrink(Communicator& parent, std::vector<int> excluded, Deadline deadline) {
  const std::scoped_lock lock(mutex_, parent.mutex_);
  const auto await_parent = [&] {
    auto state = ncclSuccess;
    const bool ready = poll(deadline, [&] {
      check_nccl(ncclCommGetAsyncError(parent.comm_, &state), "querying asynchronous errors");
      return state != ncclInProgress;
    });
    if (!ready) throw std::runtime_error("timed out");
    return state;
  };
  await_parent();
  auto config = non_blocking();
  auto* const call = find_function<decltype(ncclCommShrink)>("ncclCommShrink");
  check_nccl(
      call(parent.comm_, excluded.data(), static_cast<int>(excluded.size()), &comm_, &config, NCCL_SHRINK_DEFAULT),
      "shrinking the communicator");
  const auto state = await_parent();
  if (!comm_) check_nccl(state == ncclSuccess ? ncclInternalError : state, "shrinking the communicator");
  await_call(deadline);
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
  await_call(deadline);
}

bool Communicator::await(const Event& event, Deadline deadline) try {
  return poll(deadline, [&] {
    const bool reached = event.reached();
    const std::lock_guard lock(mutex_);
    call_completed();  // throws asynchronous errors, which can be the reason why the event is reached
    return reached;
  });
} catch (...) {
  if (interrupted_) stop();
  throw;
}

void Communicator::finish(Deadline deadline) noexcept try {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  check_nccl(ncclCommFinalize(comm_), "finalizing the communicator");
  if (!poll(deadline, [this] { return call_completed(); })) return;
  ncclCommDestroy(comm_);
  comm_ = nullptr;
} catch (const std::exception& error) {
  log::debug("finalizing a communicator: {}", error.what());
}

void Communicator::stop() noexcept try {
  const std::lock_guard lock(mutex_);
  if (!comm_ || std::exchange(stopped_, true) || revoke()) return;
  ncclCommAbort(std::exchange(comm_, nullptr));
} catch (const std::exception& error) {
  log::debug("aborting a communicator: {}", error.what());
}

// Whether the device has cancelled all operations, so that the communicator can still be shrunk.
bool Communicator::revoke() {
  if (!formed_) return false;
#if DDPRUN_NCCL_HAS_REVOKE
  auto* const call = find_function<decltype(ncclCommRevoke)>("ncclCommRevoke");
  if (!call) return false;
  auto state = call(comm_, NCCL_REVOKE_DEFAULT);
  for (const auto deadline = Deadline::in(revoke_timeout); state == ncclInProgress && !deadline.expired();) {
    std::this_thread::sleep_for(poll_interval);
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
#else
  return false;
#endif
}

// Once stopped it can only be shrunk.
ncclComm_t Communicator::usable() const {
  if (interrupted_ || !comm_) throw std::runtime_error("interrupted");
  return comm_;
}

void Communicator::await_call(Deadline deadline) const {
  if (!poll(deadline, [this] { return call_completed(); })) throw std::runtime_error("timed out");
}

// Whether NCCL has completed the last call. Throws its asynchronous error.
bool Communicator::call_completed() const {
  auto state = ncclSuccess;
  auto* const comm = usable();
  check_nccl(ncclCommGetAsyncError(comm, &state), "querying asynchronous errors");
  check_nccl(state, ncclGetLastError(comm));
  return state == ncclSuccess;
}

// False when the deadline passes before condition() holds.
template <class Condition>
bool Communicator::poll(Deadline deadline, Condition condition) const {
  constexpr int yields = 2000;  // about the duration of a small operation
  for (int tries = 0; !condition(); ++tries) {
    if (interrupted_) throw std::runtime_error("interrupted");
    if (deadline.expired()) return false;
    if (tries < yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(poll_interval);
    }
  }
  return true;
}

}  // namespace ddprun::comm
