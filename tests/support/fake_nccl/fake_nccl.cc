#include "tests/support/fake_nccl/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <nccl.h>
#include <optional>
#include <set>
#include <string>

#include "common/float16.h"
#include "tests/support/fake_nccl/fake_clique.h"
#include "tests/support/fake_nccl/fake_failure.h"
#include "tests/support/fake_nccl/fake_stream.h"

using namespace ddprun;
using namespace ddprun::testing::fake_nccl;
using comm::OpKind;

// The object behind an ncclComm_t: one rank of a clique.
struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  std::map<int, double> factors;  // those of its premultiplied sums, by their numbers
  bool polled = true;             // polled since the last call: a non-blocking call is in progress when first polled
  bool finalized = false;
  struct Child {
    std::shared_ptr<Clique> clique;
    int rank;
    ncclComm_t* result;
  };
  std::optional<Child> child;  // the one that is being created
  std::set<void*> registered;
  std::atomic<bool> broken = false;
};

namespace {

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

// The state of the library in this process.
class Library {
 public:
  std::string new_id() {
    const std::lock_guard lock(mutex_);
    return "id " + std::to_string(ids_++);
  }
  bool uses(const void* data) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(cliques_, [=](const auto& each) { return each.second->uses(data); });
  }
  std::shared_ptr<Clique> clique(const std::string& id, int size) {
    const std::lock_guard lock(mutex_);
    auto& clique = cliques_[id];
    if (!clique) clique = std::make_shared<Clique>(size);
    return clique;
  }
  ncclComm_t add(std::shared_ptr<Clique> clique, int rank, bool shrunk) {
    clique->join(rank, current_device());
    auto* const comm = new ncclComm{std::move(clique), rank, {}, false, false, {}, {}, false};
    const std::lock_guard lock(mutex_);
    existing_.insert(comm);
    ++(shrunk ? created_.shrunk : created_.initialized);
    return comm;
  }
  void remove(ncclComm_t comm) {
    {
      const std::lock_guard lock(mutex_);
      existing_.erase(comm);
    }
    registrations -= static_cast<int>(comm->registered.size());
    delete comm;
  }
  void record_ids(int count) {
    const std::lock_guard lock(mutex_);
    created_.most_ids = std::max(created_.most_ids, count);
  }
  void record_shrink(bool aborts) {
    const std::lock_guard lock(mutex_);
    if (aborts) ++created_.shrunk_by_abort;
  }
  void break_all() {
    const std::lock_guard lock(mutex_);
    for (auto* const comm : existing_) comm->broken = true;
  }
  CreatedCommunicators created() const {
    const std::lock_guard lock(mutex_);
    return created_;
  }

  std::atomic<int> registrations = 0;
  std::atomic<int> version = NCCL_VERSION_CODE;
  std::atomic<bool> refuses_shared_devices = false;

 private:
  mutable std::mutex mutex_;
  int ids_ = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques_;
  std::set<ncclComm_t> existing_;
  CreatedCommunicators created_;
};

Library& library() {
  static Library only;
  return only;
}

DType element_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return DType::int8;
    case ncclUint8:
      return DType::uint8;
    case ncclInt32:
      return DType::int32;
    case ncclInt64:
      return DType::int64;
    case ncclFloat16:
      return DType::float16;
    case ncclFloat32:
      return DType::float32;
    case ncclFloat64:
      return DType::float64;
    default:
      return DType::bfloat16;
  }
}

ReduceOp op_of(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
      return ReduceOp::sum;
    case ncclProd:
      return ReduceOp::product;
    case ncclMax:
      return ReduceOp::max;
    case ncclMin:
      return ReduceOp::min;
    case ncclAvg:
      return ReduceOp::average;
    default:
      return ReduceOp::premultiplied_sum;
  }
}

double factor_from(const void* scalar, ncclDataType_t type) {
  const auto read = [scalar](auto value) {
    std::memcpy(&value, scalar, sizeof value);
    return value;
  };
  switch (type) {
    case ncclFloat64:
      return read(double{});
    case ncclFloat32:
      return read(float{});
    case ncclFloat16:
      return float_from_float16(read(std::uint16_t{}));
    default:
      return float_from_bfloat16(read(std::uint16_t{}));
  }
}

// The calls of the ncclGroup that this thread has open.
struct Group {
  struct Issued {
    ncclComm_t comm;
    cudaStream_t stream;
    Call call;
  };
  int depth = 0;
  std::vector<Issued> issued;
};
thread_local Group group;

// Starts all calls of one communicator at once, as one kernel would.
ncclResult_t launch() {
  while (!group.issued.empty()) {
    const auto [comm, stream, first] = group.issued.front();
    std::vector<Call> calls;
    const auto others =
        std::stable_partition(group.issued.begin(), group.issued.end(), [&](auto& each) { return each.comm == comm; });
    for (auto each = group.issued.begin(); each != others; ++each) calls.push_back(each->call);
    group.issued.erase(group.issued.begin(), others);
    comm->polled = false;
    comm->clique->issue(comm->rank, calls);
    stream->run([clique = comm->clique, rank = comm->rank, calls] { clique->execute(rank, calls); });
  }
  return ncclInProgress;
}

ncclResult_t issue(const Call& call, ncclComm_t comm, cudaStream_t stream) {
  if (!comm->clique->complete() || comm->finalized) return ncclInvalidUsage;
  group.issued.push_back({comm, stream, call});
  return group.depth > 0 ? ncclSuccess : launch();
}

ncclResult_t issue_reduction(OpKind kind, const void* input, void* output, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call{kind, input, output, count, element_type(type), op_of(op), 1, root};
  if (op >= ncclNumOps) {
    const auto found = comm->factors.find(op);
    if (found == comm->factors.end()) return ncclInvalidArgument;
    call.factor = found->second;
  }
  return issue(call, comm, stream);
}

// A communicator that is being shrunk from this one exists once all its ranks have called ncclCommShrink.
bool finish_child(ncclComm_t comm) {
  if (!comm->child) return true;
  const auto& [clique, rank, result] = *comm->child;
  if (!clique->complete()) return false;
  *result = library().add(clique, rank, true);
  comm->child.reset();
  return true;
}

}  // namespace

namespace ddprun::testing::fake_nccl {

RefusesSharedDevices::RefusesSharedDevices() {
  library().refuses_shared_devices = true;
}
RefusesSharedDevices::~RefusesSharedDevices() {
  library().refuses_shared_devices = false;
}
void pretend_version(int code) {
  library().version = code;
}
void break_communicators() {
  library().break_all();
}
CreatedCommunicators created_communicators() {
  return library().created();
}
bool device_uses(const void* data) {
  return library().uses(data);
}
int registrations() {
  return library().registrations;
}

}  // namespace ddprun::testing::fake_nccl

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = library().version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the fake NCCL";
}

const char* ncclGetLastError(ncclComm_t) {
  return "a remote rank is gone";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 0, sizeof id->internal);
  if (fails_here("ncclGetUniqueId")) return ncclSystemError;
  const auto text = library().new_id();
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (fails_here("ncclCommInitRankConfig")) return ncclUnhandledCudaError;
  if (config->blocking != 0) return ncclInvalidUsage;
  *comm = library().add(library().clique(id.internal, size), rank, false);
  return ncclInProgress;
}

// All ranks have to pass the same ids, in the same order.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int id_count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  if (config->blocking != 0 || id_count > size) return ncclInvalidUsage;
  std::string all;
  for (int i = 0; i < id_count; ++i) all += ids[i].internal + std::string("; ");
  library().record_ids(id_count);
  *comm = library().add(library().clique(all, size), rank, false);
  return ncclInProgress;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* child, ncclConfig_t* config,
                            int flags) {
  if (config->blocking != 0) return ncclInvalidUsage;
  if (flags == NCCL_SHRINK_ABORT) comm->clique->abort(comm->rank);
  library().record_shrink(flags == NCCL_SHRINK_ABORT);
  const std::vector<int> ranks(excluded, excluded + count);
  const auto before = std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return rank < comm->rank; });
  const auto clique = comm->clique->without(ranks);
  comm->child = {clique, comm->rank - static_cast<int>(before), child};
  clique->join(comm->child->rank, current_device());
  return ncclInProgress;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  comm->clique->abort(comm->rank);
  comm->polled = false;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclSuccess;
  if (!std::exchange(comm->polled, true) || !comm->clique->complete() || !finish_child(comm) ||
      (comm->finalized && !comm->clique->idle(comm->rank))) {
    *state = ncclInProgress;
  }
  if (comm->broken) *state = ncclRemoteError;
  if (library().refuses_shared_devices && comm->clique->complete() && comm->clique->shares_a_device())
    *state = ncclInvalidUsage;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  cudaFree(data);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t, void** handle) {
  comm->registered.insert(data);
  *handle = data;
  ++library().registrations;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (comm->registered.erase(handle) == 0) return ncclInvalidArgument;
  --library().registrations;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  library().remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->clique->abort(comm->rank);
  library().remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t comm) {
  const int number = comm->factors.empty() ? ncclNumOps : comm->factors.rbegin()->first + 1;
  comm->factors[number] = factor_from(scalar, type);
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return comm->factors.erase(op) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  return --group.depth > 0 ? ncclSuccess : launch();
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue_reduction(OpKind::allreduce, input, output, count, type, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return issue_reduction(OpKind::reduce, input, output, count, type, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return issue_reduction(OpKind::reduce_scatter, input, output, count, type, op, -1, comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue({OpKind::broadcast, input, output, count, element_type(type), ReduceOp::sum, 1, root}, comm, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue({OpKind::allgather, input, output, count, element_type(type)}, comm, stream);
}

ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue({OpKind::send, input, nullptr, count, element_type(type), ReduceOp::sum, 1, peer}, comm, stream);
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return issue({OpKind::recv, nullptr, output, count, element_type(type), ReduceOp::sum, 1, peer}, comm, stream);
}

}  // extern "C"
