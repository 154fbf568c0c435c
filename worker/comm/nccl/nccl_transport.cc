#include "ddprun/worker/comm/nccl/nccl_transport.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/call/part_transfers.h"
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

// Those that NCCL carries out as sends and receives.
bool moves_parts(const Operation& operation) {
  return operation.kind == OpKind::gather || operation.kind == OpKind::scatter ||
         operation.kind == OpKind::all_to_all || (operation.kind == OpKind::allgather && operation.unequal());
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

  // In the caller's thread: all that it does is to give the device work and to look.
  bool runs_anywhere() const override { return true; }

  void carry_out(const Collective& collective) override {
    const auto deadline = Deadline::in(collective.timeout);
    UnderWay one;
    begin(one, collective, deadline);
    if (!communicator_.await(*one.done, deadline)) throw std::runtime_error("timed out");
  }

  // Several are on the stream at once, in the order of their calls. What fails as it begins fails as it is finished.
  bool post(const Collective& collective) override {
    auto& one = posted_.emplace_back();
    try {
      begin(one, collective, Deadline::in(collective.timeout));
    } catch (const std::exception&) {
      one.failure = std::current_exception();
    }
    return true;
  }
  bool finish_posted(const Collective&, const Deadline& deadline) override {
    auto& oldest = posted_.front();
    if (oldest.failure) std::rethrow_exception(oldest.failure);
    if (!communicator_.await(*oldest.done, deadline)) return false;
    posted_.pop_front();
    return true;
  }

  std::unique_ptr<Transfer> start(const Operation& operation, Span) override {
    expect_supported(operation);
    throw make_error(Errc::internal, "{} is no transfer", describe(operation));
  }

  // Whoever polls aborts the communicator by what follows from its exception.
  void interrupt() noexcept override { interrupted_ = true; }

 private:
  struct UnderWay {
    std::optional<Event> done;
    std::optional<DeviceMemory> copy;  // of an input that the output takes the place of
    std::exception_ptr failure;
  };

  void begin(UnderWay& one, Collective collective, Deadline deadline) {
    const CurrentDevice here(device_);
    const auto& operation = collective.operation;
    if (operation.kind == OpKind::all_to_all && collective.input.data == collective.output.data) {
      one.copy.emplace(collective.input.bytes());
      copy(collective.input, one.copy->get());
      collective.input.data = one.copy->get();
    }
    if (moves_parts(operation)) {
      const auto transfers = part_transfers(collective, {rank_, size_});
      if (transfers.copies_own()) copy(transfers.own_input, transfers.own_output.data);
      communicator_.issue([&](ncclComm_t comm) { return exchange(transfers, comm); }, deadline);
    } else {
      communicator_.issue([&](ncclComm_t comm) { return enqueue(collective, comm); }, deadline);
    }
    one.done.emplace().record(stream_);
  }

  void copy(ConstSpan from, void* to) {
    check_cuda(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToDevice, stream_.get()),
               "copying on the device");
  }

  // As one operation: none of them waits for another. The group ends also after a failure, which counts.
  ncclResult_t exchange(const PartTransfers& transfers, ncclComm_t comm) const {
    auto failure = ncclSuccess;
    const auto note = [&failure](ncclResult_t result) {
      if (failure == ncclSuccess && result != ncclInProgress) failure = result;
    };
    check_nccl(ncclGroupStart(), "beginning an exchange");
    for (const auto& [part, source] : transfers.receives) {
      note(ncclRecv(part.data, part.count, type_of(part.dtype), source, comm, stream_.get()));
    }
    for (const auto& [part, destination] : transfers.sends) {
      note(ncclSend(part.data, part.count, type_of(part.dtype), destination, comm, stream_.get()));
    }
    const auto result = ncclGroupEnd();
    return failure == ncclSuccess ? result : failure;
  }

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
  DeviceMemory nothing_;         // for a barrier
  std::deque<UnderWay> posted_;  // used by one thread at a time, as the group sees to
  Communicator communicator_;
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options) {
  return std::make_shared<NcclTransport>(options);
}

void expect_supported(const Operation& operation) {
  const bool unequal_reduction = operation.unequal() && operation.reduces();
  const bool other_reduction = operation.reduces() && !reduction_of(operation.op);
  if (operation.point_to_point() || operation.coalesced() || unequal_reduction || other_reduction) {
    throw make_error(Errc::unsupported, "the nccl back end has no {}", describe(operation));
  }
}

}  // namespace ddprun::comm
