#include "worker/comm/backends/nccl/nccl_group.h"

#include <string>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "worker/comm/backends/nccl/channels.h"
#include "worker/comm/backends/nccl/cuda_resources.h"
#include "worker/comm/backends/nccl/nccl_transport.h"
#include "worker/comm/backends/nccl/nccl_types.h"
#include "worker/comm/execution/transport_group.h"
#include "worker/comm/operations/operation.h"
#include "worker/cuda/library_version.h"

namespace ddprun::comm {
namespace {

// Throws Errc::unsupported for an operation that NCCL cannot execute.
void expect_supported(const Operation& operation) {
  if (operation.kind == OpKind::recv && operation.peer == any_source) {
    throw make_error(Errc::unsupported,
                     "{}: NCCL cannot receive from any source: name the source, or receive into memory of the host "
                     "(back ends auto, gloo, shm, hierarchical)",
                     describe(operation));
  }
  if (!operation.reduces() || operation.op == ReduceOp::premultiplied_sum || reduction_of(operation.op)) return;
  throw make_error(Errc::unsupported, "{}: NCCL has no {}", describe(operation), name_of(operation.op));
}

// Returns why this process has no device; empty where it has one. device: the one that is wanted.
std::string why_no_device(int device) try {
  int devices = 0;
  const auto found = api().cudaGetDeviceCount(&devices);
  if (found != cudaErrorNoDevice) check_cuda(found, "cudaGetDeviceCount", device);
  return devices > 0 ? "" : "CUDA finds no GPU";
} catch (const Error& error) {
  return error.what();
}

int current_device() {
  int device = 0;
  if (const auto why = why_no_device(device); !why.empty())
    throw make_error(Errc::unsupported, "the nccl back end needs a GPU, and here {}: use gloo", why);
  check_cuda(api().cudaGetDevice(&device), "cudaGetDevice", device);
  return device;
}

int logged(const GroupOptions& options, int device, const char* why) {
  if (options.rank == 0)
    log::info("back end nccl: {}; NCCL {}, device {}", why, version_text(library_version(runtime_version(device))),
              device);
  return device;
}

// Asks CUDA where the call does not say it.
bool is_on(int device, ConstSpan memory) {
  if (memory.count == 0 || memory.device != host_memory) return true;
  if (!memory.data) return false;
  cudaPointerAttributes attributes{};
  check_cuda(api().cudaPointerGetAttributes(&attributes, memory.data), "cudaPointerGetAttributes", device);
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

// Forwards to a transport group the calls that NCCL can execute, and rejects others.
class NcclGroup : public ProcessGroup {
 public:
  NcclGroup(const GroupOptions& options, const ChooseDevice& choose)
      : transport_(make_nccl_transport(options, [this, choose] { return device_ = choose(); })),
        inner_(make_transport_group(transport_, options, {"nccl", make_nccl_group})) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  std::optional<Error> failure() const override { return inner_->failure(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::shared_ptr<Transport> reusable_transport() const override { return transport_; }

  WorkPtr start(const Call& call) override {
    expect_supported(call.operation);
    expect_on_device(call);
    if (call.operation.point_to_point()) channels_.add(channel_of(call.operation, rank()));
    return inner_->start(call);
  }

  // Returns memory of the device, registered with NCCL.
  RegisteredBuffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  RegisteredBuffer allocate_on(std::int32_t device, std::size_t bytes) override {
    return device == device_ ? allocate(bytes) : ProcessGroup::allocate_on(device, bytes);
  }
  bool accepts(std::int32_t device) const override { return device == device_; }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    const CurrentDevice current(device_);
    return inner_->make_subgroup(ranks, name);
  }

 private:
  void expect_on_device(const Call& call) const {
    expect_on_device(call.operation, call.input);
    expect_on_device(call.operation, call.output);
    if (!call.operation.coalesced()) return;
    for (const auto& each : call.layout->inputs) expect_on_device(call.operation, each);
    for (const auto& each : call.layout->outputs) expect_on_device(call.operation, each);
  }
  void expect_on_device(const Operation& operation, ConstSpan memory) const {
    if (is_on(device_, memory)) return;
    throw make_error(Errc::usage, "{}: the nccl back end works on memory of a device, not of the host",
                     describe(operation));
  }

  int device_ = 0;  // set once the group has formed
  const std::shared_ptr<Transport> transport_;
  const std::unique_ptr<ProcessGroup> inner_;
  ChannelCount channels_;
};

}  // namespace

bool nccl_available() {
  return why_no_device(0).empty();
}

DevicePlace place_of_device(int device) {
  auto why = why_no_device(device);
  try {
    if (why.empty()) return {.device = bus_id_of(device), .deviceless = ""};
  } catch (const Error& error) {
    why = error.what();
  }
  return {.device = "", .deviceless = fmt::format("on host {}, where {}", local_host_name(), why)};
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options) {
  return std::make_unique<NcclGroup>(options,
                                     [options] { return logged(options, current_device(), "requested by name"); });
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int device, const char* why) {
  return std::make_unique<NcclGroup>(options, [=] { return logged(options, device, why); });
}

}  // namespace ddprun::comm
