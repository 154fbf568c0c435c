#pragma once

#include <nccl.h>
#include <optional>
#include <string>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/reduction.h"

// What NCCL calls things.
namespace ddprun::comm {

ncclDataType_t type_of(DType dtype);
// None where it has no such reduction, or makes it anew for each factor.
std::optional<ncclRedOp_t> reduction_of(ReduceOp op);

// Throws for what is no success, and not under way either: Errc::usage where NCCL refuses the call, else
// Errc::connection_lost.
void check_nccl(ncclResult_t result, const char* what);

// Of the library at run time: 22809 for 2.28.9.
int running_version();
std::string version_text(int code);

// While it lives, NCCL has a premultiplied sum of this factor, which has to be of the type of the values.
class PremultipliedSum {
 public:
  PremultipliedSum(double factor, DType dtype, ncclComm_t comm);
  PremultipliedSum(const PremultipliedSum&) = delete;
  PremultipliedSum& operator=(const PremultipliedSum&) = delete;
  ~PremultipliedSum() { ncclRedOpDestroy(op_, comm_); }
  ncclRedOp_t get() const { return op_; }

 private:
  const ncclComm_t comm_;
  ncclRedOp_t op_{};
};

}  // namespace ddprun::comm
