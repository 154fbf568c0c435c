#include "tests/contract/host_memory_group.h"

#include <chrono>
#include <limits>
#include <utility>

#include "common/deadline.h"
#include "common/error.h"
#include "worker/comm/backends/staged/device_copies.h"
#include "worker/comm/backends/staged/staged_call.h"

namespace ddprun::contract {
namespace {

class HostMemoryGroup : public ProcessGroup {
 public:
  HostMemoryGroup(std::unique_ptr<ProcessGroup> devices, int device) : devices_(std::move(devices)), device_(device) {}

  int rank() const override { return devices_->rank(); }
  int size() const override { return devices_->size(); }
  std::string_view backend() const override { return devices_->backend(); }
  std::optional<Error> failure() const override { return devices_->failure(); }
  void abort(const std::string& reason) override { devices_->abort(reason); }

  WorkPtr start(const comm::Call& call) override {
    const comm::CurrentDevice current(device_);
    const auto whole = comm::divide(call, size(), std::numeric_limits<std::size_t>::max(), false);
    const auto memory = comm::zeroed_device_memory(device_, comm::staging_bytes(call, whole));
    // The plan is for the opposite direction: what it calls the device's memory is the host's here.
    const auto moved = comm::plan_staged_call(call, whole, 0, {rank(), size()}, memory.data());
    comm::CopyStream copies(device_);
    for (const auto& each : moved.read) copies.to_device(memory.data() + each.offset, each.device, each.bytes);
    await(copies);
    auto work = devices_->start(moved.call);
    work->wait();
    for (const auto& each : moved.written) copies.to_host(each.device, memory.data() + each.offset, each.bytes);
    await(copies);
    return work;
  }

 private:
  static void await(const comm::CopyStream& copies) {
    if (!copies.await_idle(Deadline::in(std::chrono::seconds(60))))
      throw Error(Errc::timeout, "a copy between host and device takes more than 60 s");
  }

  const std::unique_ptr<ProcessGroup> devices_;
  const int device_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_host_memory_group(std::unique_ptr<ProcessGroup> devices, int device) {
  return std::make_unique<HostMemoryGroup>(std::move(devices), device);
}

}  // namespace ddprun::contract
