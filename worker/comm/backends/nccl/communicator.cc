#include "worker/comm/backends/nccl/communicator.h"

#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "worker/comm/backends/nccl/cuda_check.h"
#include "worker/comm/backends/nccl/nccl_api.h"
#include "worker/comm/backends/nccl/nccl_types.h"
#include "worker/comm/backends/nccl/shrink.h"
#include "worker/comm/execution/yield.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds revoke_timeout(5);
constexpr std::chrono::seconds idle_timeout(1);  // for what is cancelled to leave the device
constexpr std::chrono::microseconds status_interval(50);

NcclCall init(ncclComm_t* comm, std::vector<ncclUniqueId>& ids, int rank, int size, ncclConfig_t& config) {
#if DDPRUN_NCCL_HAS_SCALABLE
  if (ids.size() > 1)
    return {"ncclCommInitRankScalable",
            api().ncclCommInitRankScalable(comm, size, rank, static_cast<int>(ids.size()), ids.data(), &config)};
#endif
  return {"ncclCommInitRankConfig", api().ncclCommInitRankConfig(comm, size, ids.front(), rank, &config)};
}

void check(const NcclCall& call, int device) {
  check_nccl(call.result, call.function, device);
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Communicator::~Communicator() {
  close();
}

// NCCL drops registrations together with the communicator.
void Communicator::close() noexcept {
  const std::lock_guard lock(mutex_);
  registered_.clear();
  if (comm_) api().ncclCommAbort(std::exchange(comm_, nullptr));
}

void Communicator::connect(int device, std::vector<ncclUniqueId> ids, int rank, int size, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  device_ = device;
  auto config = non_blocking();
  check(init(&comm_, ids, rank, size, config), device_);
  await_call(deadline);
  formed_ = true;
}

bool Communicator::can_shrink() const {
#if DDPRUN_NCCL_HAS_SHRINK
  const std::lock_guard lock(mutex_);
  return comm_ && api().ncclCommShrink && version_has_shrink(runtime_version(device_));
#else
  return false;
#endif
}

#if DDPRUN_NCCL_HAS_SHRINK
// The parent may still be being revoked; the new communicator exists once the parent has completed this call, too.
void Communicator::shrink(Communicator& parent, std::vector<int> excluded, Deadline deadline) {
  const std::scoped_lock lock(mutex_, parent.mutex_);
  device_ = parent.device_;
  const auto await_parent = [&] {
    auto state = ncclSuccess;
    const bool ready = poll(deadline, [&] {
      check_nccl(api().ncclCommGetAsyncError(parent.comm_, &state), "ncclCommGetAsyncError", device_);
      return state != ncclInProgress;
    });
    if (!ready) throw std::runtime_error("timed out");
    return state;
  };
  await_parent();
  auto config = non_blocking();
  const int flags = parent.interrupted_ ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT;
  check_nccl(
      api().ncclCommShrink(parent.comm_, excluded.data(), static_cast<int>(excluded.size()), &comm_, &config, flags),
      "ncclCommShrink", device_);
  const auto state = await_parent();
  if (!comm_) check_nccl(state == ncclSuccess ? ncclInternalError : state, "ncclCommShrink", device_);
  await_call(deadline);
  formed_ = true;
}
#else
void Communicator::shrink(Communicator&, std::vector<int>, Deadline) {
  throw Error(Errc::internal, "this build's NCCL cannot shrink a communicator");
}
#endif

void Communicator::issue(const std::function<NcclCall(ncclComm_t)>& calls, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  check(calls(usable()), device_);
  await_call(deadline);
}

bool Communicator::await(const Event& event, Deadline deadline) {
  return poll(deadline, [&] {
    const bool reached = event.reached();
    const std::lock_guard lock(mutex_);
    call_completed();  // throws asynchronous errors, which can be the reason why the event is reached
    return reached;
  });
}

// Without a registration NCCL copies through buffers of its own.
void Communicator::add_memory(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  void* handle = nullptr;
  if (api().ncclCommRegister(usable(), memory, bytes, &handle) == ncclSuccess) registered_[memory] = handle;
}

void Communicator::remove_memory(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = registered_.find(memory);
  if (found == registered_.end()) return;
  if (comm_) api().ncclCommDeregister(comm_, found->second);
  registered_.erase(found);
}

void Communicator::finish(Deadline deadline) noexcept try {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  check_nccl(api().ncclCommFinalize(comm_), "ncclCommFinalize", device_);
  if (!poll(deadline, [this] { return call_completed(); })) return;
  registered_.clear();
  api().ncclCommDestroy(std::exchange(comm_, nullptr));
} catch (const std::exception& error) {
  log::debug("finalizing a communicator: {}", error.what());
}

void Communicator::stop(const Stream* stream) noexcept try {
  cancel_operations();
  if (stream) stream->await_idle(Deadline::in(idle_timeout));
} catch (const std::exception& error) {
  log::debug("aborting a communicator: {}", error.what());
}

void Communicator::cancel_operations() {
  const std::lock_guard lock(mutex_);
  if (!comm_ || std::exchange(stopped_, true) || revoke()) return;
  registered_.clear();
  api().ncclCommAbort(std::exchange(comm_, nullptr));
}

// Returns whether the device has cancelled all operations, so that the communicator can still be shrunk.
bool Communicator::revoke() {
  if (!formed_) return false;
#if DDPRUN_NCCL_HAS_REVOKE
  if (!api().ncclCommRevoke) return false;
  auto state = api().ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT);
  for (const auto deadline = Deadline::in(revoke_timeout); state == ncclInProgress && !deadline.expired();) {
    std::this_thread::sleep_for(status_interval);
    if (api().ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
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

// Returns whether NCCL has completed the last call. Throws its asynchronous error.
bool Communicator::call_completed() const {
  auto state = ncclSuccess;
  auto* const comm = usable();
  check_nccl(api().ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", device_);
  check_nccl(state, "an operation of NCCL (ncclCommGetAsyncError)", device_, api().ncclGetLastError(comm));
  return state == ncclSuccess;
}

// Returns false when the deadline passes before condition() holds.
template <class Condition>
bool Communicator::poll(Deadline deadline, Condition condition) const {
  constexpr int yields = 2000;  // about the duration of a small operation
  for (int tries = 0; !condition(); ++tries) {
    if (interrupted_) throw std::runtime_error("interrupted");
    if (deadline.expired()) return false;
    if (tries >= yields || !yield_processor()) std::this_thread::sleep_for(status_interval);
  }
  return true;
}

}  // namespace ddprun::comm
