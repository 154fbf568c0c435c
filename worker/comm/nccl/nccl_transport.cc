#include "ddprun/worker/comm/nccl/nccl_transport.h"

#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/forming/await_ranks.h"
#include "ddprun/worker/comm/nccl/communicator.h"
#include "ddprun/worker/comm/nccl/cuda_resources.h"

namespace ddprun::comm {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::int8:
      return ncclInt8;
    case DType::uint8:
      return ncclUint8;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
  }
  throw Error(Errc::internal, "an unknown element type");
}

std::optional<ncclRedOp_t> reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::average:
      return ncclAvg;
    case ReduceOp::product:
      return ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    default:
      return std::nullopt;
  }
}

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  return device;
}

class NcclTransport : public Transport {
 public:
  explicit NcclTransport(const GroupOptions& options)
      : rank_(options.rank), size_(options.size), device_(current_device()), nothing_(1), communicator_(interrupted_) {}

  std::string_view backend() const override { return "nccl"; }

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    ncclUniqueId id;
    if (rank_ == 0) {
      check_nccl(ncclGetUniqueId(&id), "making an id");
      store.set(prefix + "nccl", std::string(id.internal, sizeof id.internal), deadline);
    } else {
      const auto text = await_ranks(store, {{0, prefix + "nccl"}}, size_, interrupted_, deadline).front();
      if (text.size() != sizeof id.internal) throw Error(Errc::usage, "rank 0 has another version of NCCL");
      std::memcpy(id.internal, text.data(), text.size());
    }
    communicator_.connect(id, rank_, size_, deadline);
  }

  void carry_out(const Collective& collective) override {
    const auto deadline = Deadline::in(collective.timeout);
    check_cuda(cudaSetDevice(device_), "choosing the device");  // of this thread
    communicator_.issue([&](ncclComm_t comm) { return enqueue(collective, comm); }, deadline);
    done_.record(stream_);
    communicator_.await(done_, deadline);
  }

  std::unique_ptr<Transfer> start(const Operation& operation, Span) override {
    expect_supported(operation);
    throw make_error(Errc::internal, "{} is no transfer", describe(operation));
  }

  // Whoever polls aborts the communicator by what follows from its exception.
  void interrupt() noexcept override { interrupted_ = true; }

 private:
  ncclResult_t enqueue(const Collective& collective, ncclComm_t comm) const {
    const auto& operation = collective.operation;
    const auto* input = collective.input.data;
    auto* output = collective.output.data;
    const auto count = operation.count;
    const auto type = type_of(operation.dtype);
    const auto op = reduction_of(operation.op).value_or(ncclSum);
    const auto stream = stream_.get();
    switch (operation.kind) {
      case OpKind::allreduce:
        return ncclAllReduce(input, output, count, type, op, comm, stream);
      case OpKind::reduce:
        return ncclReduce(input, output, count, type, op, operation.peer, comm, stream);
      case OpKind::broadcast:
        return ncclBroadcast(input, output, count, type, operation.peer, comm, stream);
      case OpKind::allgather:
        return ncclAllGather(input, output, count, type, comm, stream);
      case OpKind::reduce_scatter:
        return ncclReduceScatter(input, output, count, type, op, comm, stream);
      case OpKind::barrier:
        return ncclAllReduce(nothing_.get(), nothing_.get(), 1, ncclUint8, ncclMax, comm, stream);
      default:
        throw make_error(Errc::unsupported, "NCCL has no {}", describe(operation));
    }
  }

  const int rank_, size_, device_;
  std::atomic<bool> interrupted_ = false;
  Stream stream_;
  Event done_;
  DeviceMemory nothing_;  // for a barrier
  Communicator communicator_;
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options) {
  return std::make_shared<NcclTransport>(options);
}

void expect_supported(const Operation& operation) {
  if (operation.unequal() || operation.coalesced()) {
    throw make_error(Errc::unsupported, "the nccl back end has no {}", describe(operation));
  }
  switch (operation.kind) {
    case OpKind::allreduce:
    case OpKind::reduce:
    case OpKind::broadcast:
    case OpKind::allgather:
    case OpKind::reduce_scatter:
    case OpKind::barrier:
      break;
    default:
      throw make_error(Errc::unsupported, "the nccl back end has no {}", describe(operation));
  }
  if (operation.reduces() && !reduction_of(operation.op)) {
    throw make_error(Errc::unsupported, "the nccl back end has no {}", describe(operation));
  }
}

}  // namespace ddprun::comm
