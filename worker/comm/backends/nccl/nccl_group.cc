#include "ddprun/worker/comm/backends/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/backends/nccl/channels.h"
#include "ddprun/worker/comm/backends/nccl/cuda_resources.h"
#include "ddprun/worker/comm/backends/nccl/nccl_transport.h"
#include "ddprun/worker/comm/backends/nccl/nccl_types.h"
#include "ddprun/worker/comm/execution/transport_group.h"
#include "ddprun/worker/comm/operations/operation.h"

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

int current_device() {
  int devices = 0, device = 0;
  const auto found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    throw make_error(Errc::unsupported, "the nccl back end needs a GPU, and CUDA finds none here ({}): use gloo",
                     cudaGetErrorString(found == cudaSuccess ? cudaErrorNoDevice : found));
  }
  check_cuda(cudaGetDevice(&device), "querying the current device");
  return device;
}

int logged(const GroupOptions& options, int device, const char* why) {
  if (options.rank == 0)
    log::info("back end nccl: {}; NCCL {}, device {}", why, version_text(runtime_version()), device);
  return device;
}

RegisteredBuffer managed_buffer(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocManaged(&memory, std::max<std::size_t>(bytes, 1)), "allocating managed memory");
  std::memset(memory, 0, bytes);
  return {{static_cast<std::byte*>(memory), [](std::byte* data) { cudaFree(data); }}, bytes};
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

  // Managed memory, which the device and the host can access.
  RegisteredBuffer allocate(std::size_t bytes) override {
    const CurrentDevice current(device_);
    return managed_buffer(bytes);
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    const CurrentDevice current(device_);
    return inner_->make_subgroup(ranks, name);
  }

 private:
  static void expect_on_device(const Call& call) {
    expect_on_device(call.operation, call.input);
    expect_on_device(call.operation, call.output);
    if (!call.operation.coalesced()) return;
    for (const auto& each : call.layout->inputs) expect_on_device(call.operation, each);
    for (const auto& each : call.layout->outputs) expect_on_device(call.operation, each);
  }
  static void expect_on_device(const Operation& operation, ConstSpan memory) {
    if (memory.count == 0 || device_of(memory.data)) return;
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
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

std::string why_no_nccl() {
  if (nccl_available()) return "";
  return fmt::format("on host {}, where CUDA finds no GPU", local_host_name());
}

std::optional<int> device_of(const void* memory) {
  if (!memory) return std::nullopt;
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, memory), "querying a pointer's attributes");
  if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) return attributes.device;
  return std::nullopt;
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options) {
  return std::make_unique<NcclGroup>(options,
                                     [options] { return logged(options, current_device(), "requested by name"); });
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int device, const char* why) {
  return std::make_unique<NcclGroup>(options, [=] { return logged(options, device, why); });
}

}  // namespace ddprun::comm
