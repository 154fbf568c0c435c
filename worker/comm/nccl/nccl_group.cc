#include "ddprun/worker/comm/nccl/nccl_group.h"

#include <string>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/nccl/communicator.h"
#include "ddprun/worker/comm/nccl/cuda_resources.h"
#include "ddprun/worker/comm/nccl/nccl_transport.h"
#include "ddprun/worker/comm/operation.h"
#include "ddprun/worker/comm/transport/transport_group.h"

namespace ddprun::comm {
namespace {

// Lets calls through that NCCL can carry out: its kinds, on memory of the group's device.
class NcclGroup : public ProcessGroup {
 public:
  explicit NcclGroup(std::unique_ptr<ProcessGroup> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  WorkPtr start(const Call& call) override {
    expect_supported(call.operation);
    expect_on_device(call.operation, call.input);
    expect_on_device(call.operation, call.output);
    const auto kind = call.operation.kind;
    const bool works_in_place = kind == OpKind::allreduce || kind == OpKind::reduce;
    return inner_->start(works_in_place ? in_place(call) : call);
  }

 private:
  // Elsewhere the host would copy. Behind what the default stream was given, as all calls are.
  static Call in_place(Call call) {
    if (call.output.count == 0) {  // a reduce, not at its root: only read
      call.output = {const_cast<void*>(call.input.data), call.input.count, call.input.dtype};
    } else if (call.output.data != call.input.data) {
      check_cuda(
          cudaMemcpyAsync(call.output.data, call.input.data, call.input.bytes(), cudaMemcpyDeviceToDevice, nullptr),
          "copying the input");
    }
    call.input = call.output;
    return call;
  }
  static void expect_on_device(const Operation& operation, ConstSpan memory) {
    if (memory.count == 0) return;
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, memory.data), "asking where memory is");
    if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) return;
    throw make_error(Errc::usage, "{}: the nccl back end works on memory of a device, not of the host",
                     describe(operation));
  }

  const std::unique_ptr<ProcessGroup> inner_;
};

// "2.28.9": of the library at run time.
std::string version() {
  int code = 0;
  check_nccl(ncclGetVersion(&code), "asking for its version");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace

bool nccl_available() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options) {
  int devices = 0;
  const auto found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    throw make_error(Errc::unsupported, "the nccl back end needs a GPU, and CUDA finds none here ({}): use gloo",
                     cudaGetErrorString(found == cudaSuccess ? cudaErrorNoDevice : found));
  }
  if (options.rank == 0) log::info("back end nccl: asked for by name; NCCL {}, {} GPUs here", version(), devices);
  return std::make_unique<NcclGroup>(make_transport_group(make_nccl_transport(options), options));
}

}  // namespace ddprun::comm
