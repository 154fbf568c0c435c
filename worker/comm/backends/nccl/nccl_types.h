#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/dtype.h"
#include "worker/comm/backends/nccl/nccl_api.h"
#include "worker/comm/reduction.h"

// Conversions from and to NCCL's types.
namespace ddprun::comm {

ncclDataType_t type_of(DType dtype);
// Returns none where NCCL has no such reduction, and for premultiplied sums (PremultipliedSum).
std::optional<ncclRedOp_t> reduction_of(ReduceOp op);

// The version of the library at run time: 22809 for 2.28.9. device: the one that an error names.
int runtime_version(int device);

// The ranks of a communicator find each other by an id: one rank makes it and passes it to the others through the
// store.
ncclUniqueId make_unique_id(int device);
std::string text_of(const ncclUniqueId& id);
// Throws Errc::usage when text is not an id.
ncclUniqueId unique_id_from(std::string_view text);

// A premultiplied sum with this factor, which exists in NCCL as long as the object.
class PremultipliedSum {
 public:
  PremultipliedSum(double factor, DType dtype, ncclComm_t comm, int device);
  PremultipliedSum(const PremultipliedSum&) = delete;
  PremultipliedSum& operator=(const PremultipliedSum&) = delete;
  ~PremultipliedSum() { api().ncclRedOpDestroy(op_, comm_); }
  ncclRedOp_t get() const { return op_; }

 private:
  const ncclComm_t comm_;
  ncclRedOp_t op_{};
};

}  // namespace ddprun::comm
