#include "tests/support/fake_nccl/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <nccl.h>
#include <optional>
#include <set>
#include <string>

#include "ddprun/worker/comm/reduce/half.h"
#include "tests/support/fake_nccl/fake_clique.h"
#include "tests/support/fake_nccl/fake_failure.h"
#include "tests/support/fake_nccl/fake_stream.h"

using namespace ddprun;
using namespace ddprun::testing::fake_nccl;
using comm::OpKind;

// What an ncclComm_t points to: one rank's end of a clique.
struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  std::map<int, double> factors;  // of its own reductions, by their numbers
  bool asked = true;              // since the last call: one that does not block is under way when first asked about
  bool finalized = false;
  struct Child {
    std::shared_ptr<Clique> clique;
    int rank;
    ncclComm_t* place;
  };
  std::optional<Child> child;  // that is being made
  std::atomic<bool> broken = false;
};

namespace {

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

// All that the process has of NCCL.
class Library {
 public:
  std::string new_id() {
    const std::lock_guard lock(mutex_);
    return "id " + std::to_string(ids_++);
  }
  std::shared_ptr<Clique> clique(const std::string& id, int size) {
    const std::lock_guard lock(mutex_);
    auto& clique = cliques_[id];
    if (!clique) clique = std::make_shared<Clique>(size);
    return clique;
  }
  ncclComm_t add(std::shared_ptr<Clique> clique, int rank, bool shrunk) {
    clique->join(rank, current_device());
    auto* const comm = new ncclComm{std::move(clique), rank, {}, false, false, {}, false};
    const std::lock_guard lock(mutex_);
    living_.insert(comm);
    ++(shrunk ? made_.shrunk : made_.anew);
    return comm;
  }
  void remove(ncclComm_t comm) {
    {
      const std::lock_guard lock(mutex_);
      living_.erase(comm);
    }
    delete comm;
  }
  void break_all() {
    const std::lock_guard lock(mutex_);
    for (auto* const comm : living_) comm->broken = true;
  }
  Made made() const {
    const std::lock_guard lock(mutex_);
    return made_;
  }

  std::atomic<int> version = NCCL_VERSION_CODE;
  std::atomic<bool> refuses_shared_devices = false;

 private:
  mutable std::mutex mutex_;
  int ids_ = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques_;
  std::set<ncclComm_t> living_;
  Made made_;
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
      return comm::float_from_float16(read(std::uint16_t{}));
    default:
      return comm::float_from_bfloat16(read(std::uint16_t{}));
  }
}

// The calls of a group that this thread is in.
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

// All of one communicator's at once, as one kernel would.
ncclResult_t launch() {
  while (!group.issued.empty()) {
    const auto [comm, stream, first] = group.issued.front();
    std::vector<Call> calls;
    const auto others =
        std::stable_partition(group.issued.begin(), group.issued.end(), [&](auto& each) { return each.comm == comm; });
    for (auto each = group.issued.begin(); each != others; ++each) calls.push_back(each->call);
    group.issued.erase(group.issued.begin(), others);
    comm->asked = false;
    comm->clique->issue(comm->rank);
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

// A communicator that is being made of this one is there once all its ranks have asked for it.
bool finish_child(ncclComm_t comm) {
  if (!comm->child) return true;
  const auto& [clique, rank, place] = *comm->child;
  if (!clique->complete()) return false;
  *place = library().add(clique, rank, true);
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
Made made() {
  return library().made();
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

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  if (fails_here("ncclCommInitRankConfig")) return ncclUnhandledCudaError;
  *comm = library().add(library().clique(id.internal, size), rank, false);
  return ncclInProgress;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* child, ncclConfig_t*, int flags) {
  if (flags == NCCL_SHRINK_ABORT) comm->clique->abort(comm->rank);
  const std::vector<int> left_out(excluded, excluded + count);
  const auto before = std::count_if(left_out.begin(), left_out.end(), [&](int rank) { return rank < comm->rank; });
  const auto clique = comm->clique->without(left_out);
  comm->child = {clique, comm->rank - static_cast<int>(before), child};
  clique->join(comm->child->rank, current_device());
  return ncclInProgress;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  comm->clique->abort(comm->rank);
  comm->asked = false;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclSuccess;
  if (!std::exchange(comm->asked, true) || !comm->clique->complete() || !finish_child(comm) ||
      (comm->finalized && !comm->clique->quiet(comm->rank))) {
    *state = ncclInProgress;
  }
  if (comm->broken) *state = ncclRemoteError;
  if (library().refuses_shared_devices && comm->clique->complete() && comm->clique->shares_a_device())
    *state = ncclInvalidUsage;
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
