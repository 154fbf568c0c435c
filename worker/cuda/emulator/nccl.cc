// The functions of NCCL. Ranks are threads of one process, processes, or both; each has a device of its own.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <nccl.h>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker/cuda/emulator/machine.h"
#include "worker/cuda/emulator/nccl_segment.h"
#include "worker/cuda/emulator/nccl_transfer.h"
#include "worker/cuda/emulator/nccl_values.h"

using namespace ddprun::cuda::emulator;

// One rank of a communicator.
struct ncclComm {
  // The state that the streams' work refers to.
  struct Activity {
    int issued = 0;  // groups of calls that have not finished
    bool cancelled = false;
  };
  struct Child {
    std::shared_ptr<NcclSegment> segment;
    int rank;
    ncclComm_t* result;
  };

  std::shared_ptr<NcclSegment> segment;
  int rank;
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
  bool polled = false;  // true if it was asked since the last call: a call is in progress when it is first asked
  bool finalized = false;
  std::map<int, double> factors;  // those of its premultiplied sums, by their numbers
  std::set<void*> registered;
  std::optional<Child> child;  // the one that is being made
};

namespace {

bool cannot_go_on(const NcclSegment& segment) {
  return segment.complete() && segment.shares_a_device();
}

// Digests NCCL_HOSTID, or the host's name: of ranks of one host, no two may have the same device.
std::uint64_t host_identity() {
  std::array<char, 256> name{};
  const char* const given = std::getenv("NCCL_HOSTID");
  if (given == nullptr) ::gethostname(name.data(), name.size() - 1);
  return std::hash<std::string_view>()(given != nullptr ? given : name.data());
}

ncclResult_t join(NcclSegment& segment, int size, int rank, const std::string& bus_id) {
  if (size > max_nccl_ranks || rank < 0 || rank >= size) return ncclInvalidArgument;
  segment->size = size;
  auto& own = segment->ranks[static_cast<std::size_t>(rank)];
  std::snprintf(own.bus_id.data(), own.bus_id.size(), "%s", bus_id.c_str());
  own.host = host_identity();
  own.joined = true;
  return ncclSuccess;
}

void cancel(ncclComm& comm) {
  comm.activity->cancelled = true;
  comm.activity = std::make_shared<ncclComm::Activity>();
}

// The calls of the ncclGroup that this thread has open.
struct Group {
  struct Issued {
    ncclComm_t comm;
    cudaStream_t stream;
    NcclOperation operation;
  };
  int depth = 0;
  std::vector<Issued> issued;
};
thread_local Group group;

// Launches all calls of one communicator at once, as one kernel would.
void launch(Machine& machine, std::vector<Group::Issued> issued) {
  while (!issued.empty()) {
    ncclComm* const comm = issued.front().comm;
    CUstream_st* const stream = machine.find_stream(issued.front().stream);
    std::vector<NcclOperation> operations;
    for (const auto& each : issued)
      if (each.comm == comm) operations.push_back(each.operation);
    std::erase_if(issued, [&](const auto& each) { return each.comm == comm; });
    comm->polled = false;
    ++comm->activity->issued;
    const auto transfer = std::make_shared<NcclTransfer>(comm->segment, comm->rank, std::move(operations));
    machine.enqueue(stream, [transfer, activity = comm->activity] {
      if (!activity->cancelled && !transfer->advance()) return false;
      --activity->issued;
      return true;
    });
  }
}

ncclResult_t issue(const char* function, const NcclOperation& operation, ncclComm_t comm, cudaStream_t stream) {
  const Call call(function);
  if (call.fails()) return call.failure(ncclUnhandledCudaError);
  if (!comm->segment->complete() || comm->finalized) return ncclInvalidUsage;
  if (call.machine().find_stream(stream) == nullptr) return ncclInvalidArgument;
  group.issued.push_back({comm, stream, operation});
  if (group.depth > 0) return ncclSuccess;
  launch(call.machine(), std::exchange(group.issued, {}));
  return ncclInProgress;
}

NcclOperation operation_of(NcclKind kind, const void* input, void* output, std::size_t count, ncclDataType_t type) {
  return {.kind = kind,
          .header = {.kind = static_cast<std::int32_t>(kind), .type = type, .op = ncclSum, .root = 0, .count = count},
          .input = static_cast<const std::byte*>(input),
          .output = static_cast<std::byte*>(output),
          .peer = -1};
}

ncclResult_t issue_reduction(const char* function, NcclOperation operation, ncclRedOp_t op, int root, ncclComm_t comm,
                             cudaStream_t stream) {
  operation.header.op = std::min<int>(op, ncclNumOps);
  operation.header.root = root;
  if (op >= ncclNumOps) {
    const auto found = comm->factors.find(op);
    if (found == comm->factors.end()) return ncclInvalidArgument;
    operation.header.factor = found->second;
  }
  return issue(function, operation, comm, stream);
}

ncclComm_t make_comm(Machine& machine, std::shared_ptr<NcclSegment> segment, int rank) {
  ++machine.communicators();
  return new ncclComm{.segment = std::move(segment), .rank = rank};
}

void destroy_comm(Machine& machine, ncclComm_t comm) {
  cancel(*comm);
  --machine.communicators();
  delete comm;
}

// A communicator that is made from another exists once all its ranks have asked for it.
bool finish_child(Machine& machine, ncclComm& comm) {
  if (!comm.child) return true;
  if (!comm.child->segment->complete()) return false;
  *comm.child->result = make_comm(machine, comm.child->segment, comm.child->rank);
  comm.child.reset();
  return true;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = Machine::get().settings().nccl.value_or(NCCL_VERSION_CODE);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "unhandled cuda error (emulated)";
    case ncclSystemError:
      return "unhandled system error (emulated)";
    case ncclInvalidUsage:
      return "invalid usage (emulated)";
    default:
      return "an error of the emulated NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return "an error of the emulated NCCL";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Call call("ncclGetUniqueId");
  const auto segment = call.fails() ? nullptr : NcclSegment::create();
  if (!segment) return ncclSystemError;
  std::memset(id->internal, 0, sizeof id->internal);
  const SegmentName name = segment->name();
  std::memcpy(id->internal, &name, sizeof name);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return ncclCommInitRankScalable(comm, size, rank, 1, &id, config);
}

// The ranks meet at the first id.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int id_count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  const Call call(id_count == 1 ? "ncclCommInitRankConfig" : "ncclCommInitRankScalable");
  if (call.fails()) return call.failure(ncclUnhandledCudaError);
  if (id_count < 1 || id_count > size) return ncclInvalidArgument;
  if (config == nullptr || config->blocking != 0) return ncclInvalidUsage;  // nothing here waits
  SegmentName name;
  std::memcpy(&name, ids[0].internal, sizeof name);
  const auto segment = NcclSegment::open(name);
  if (!segment) return ncclSystemError;
  if (const auto result = join(*segment, size, rank, call.machine().bus_id(call.machine().current_device()));
      result != ncclSuccess)
    return result;
  *comm = make_comm(call.machine(), segment, rank);
  return ncclInProgress;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* child, ncclConfig_t*, int flags) {
  const Call call("ncclCommShrink");
  if (call.fails()) return call.failure(ncclUnhandledCudaError);
  if (flags == NCCL_SHRINK_ABORT) cancel(*comm);
  std::uint64_t bits = 0;
  for (int i = 0; i < count; ++i) bits |= std::uint64_t{1} << excluded[i];
  const auto segment = comm->segment->child_without(bits);
  if (!segment) return ncclSystemError;
  const auto before = std::count_if(excluded, excluded + count, [&](int rank) { return rank < comm->rank; });
  const int rank = comm->rank - static_cast<int>(before);
  const int size = (*comm->segment)->size - count;
  if (const auto result = join(*segment, size, rank, call.machine().bus_id(call.machine().current_device()));
      result != ncclSuccess)
    return result;
  comm->child = {segment, rank, child};
  return ncclInProgress;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  const Call call("ncclCommRevoke");
  if (call.fails()) return call.failure(ncclUnhandledCudaError);
  cancel(*comm);
  comm->polled = false;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Call call("ncclCommGetAsyncError");
  if (call.fails()) return call.failure(ncclSystemError);
  const bool was_polled = std::exchange(comm->polled, true);
  *state = ncclSuccess;
  if (!was_polled || !comm->segment->complete() || !finish_child(call.machine(), *comm) ||
      (comm->finalized && comm->activity->issued > 0))
    *state = ncclInProgress;
  if (cannot_go_on(*comm->segment)) *state = ncclInvalidUsage;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Call call("ncclCommFinalize");
  if (call.fails()) return call.failure(ncclSystemError);
  comm->finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Call call("ncclCommDestroy");
  destroy_comm(call.machine(), comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Call call("ncclCommAbort");
  destroy_comm(call.machine(), comm);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t, void** handle) {
  const Call call("ncclCommRegister");
  if (call.fails()) return call.failure(ncclSystemError);
  comm->registered.insert(memory);
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const Call call("ncclCommDeregister");
  return comm->registered.erase(handle) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t comm) {
  const Call call("ncclRedOpCreatePreMulSum");
  if (call.fails()) return call.failure(ncclSystemError);
  const int number = comm->factors.empty() ? ncclNumOps : comm->factors.rbegin()->first + 1;
  comm->factors[number] = scalar_value(scalar, type);
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const Call call("ncclRedOpDestroy");
  return comm->factors.erase(op) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclGroupStart() {
  const Call call("ncclGroupStart");
  if (call.fails()) return ncclSystemError;
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Call call("ncclGroupEnd");
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  auto issued = std::exchange(group.issued, {});
  if (call.fails()) return call.failure(ncclUnhandledCudaError);
  const bool is_empty = issued.empty();
  launch(call.machine(), std::move(issued));
  return is_empty ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue_reduction("ncclAllReduce", operation_of(NcclKind::allreduce, input, output, count, type), op, 0, comm,
                         stream);
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return issue_reduction("ncclReduce", operation_of(NcclKind::reduce, input, output, count, type), op, root, comm,
                         stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return issue_reduction("ncclReduceScatter", operation_of(NcclKind::reduce_scatter, input, output, count, type), op, 0,
                         comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  auto operation = operation_of(NcclKind::broadcast, input, output, count, type);
  operation.header.root = root;
  return issue("ncclBroadcast", operation, comm, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue("ncclAllGather", operation_of(NcclKind::allgather, input, output, count, type), comm, stream);
}

ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  auto operation = operation_of(NcclKind::send, input, nullptr, count, type);
  operation.peer = peer;
  return issue("ncclSend", operation, comm, stream);
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  auto operation = operation_of(NcclKind::recv, nullptr, output, count, type);
  operation.peer = peer;
  return issue("ncclRecv", operation, comm, stream);
}

}  // extern "C"
