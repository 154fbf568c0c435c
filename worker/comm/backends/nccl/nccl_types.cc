#include "worker/comm/backends/nccl/nccl_types.h"

#include <cstring>

#include "common/error.h"
#include "common/float16.h"
#include "worker/comm/backends/nccl/cuda_check.h"

namespace ddprun::comm {

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

int runtime_version(int device) {
  int code = 0;
  check_nccl(api().ncclGetVersion(&code), "ncclGetVersion", device);
  return code;
}

ncclUniqueId make_unique_id(int device) {
  ncclUniqueId id;
  check_nccl(api().ncclGetUniqueId(&id), "ncclGetUniqueId", device);
  return id;
}

std::string text_of(const ncclUniqueId& id) {
  return {id.internal, sizeof id.internal};
}

ncclUniqueId unique_id_from(std::string_view text) {
  ncclUniqueId id;
  if (text.size() != sizeof id.internal) throw Error(Errc::usage, "the ranks have different versions of NCCL");
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

PremultipliedSum::PremultipliedSum(double factor, DType dtype, ncclComm_t comm, int device) : comm_(comm) {
  const auto create = [&](auto scalar) {
    check_nccl(api().ncclRedOpCreatePreMulSum(&op_, &scalar, type_of(dtype), ncclScalarHostImmediate, comm_),
               "ncclRedOpCreatePreMulSum", device);
  };
  const auto single = static_cast<float>(factor);
  if (dtype == DType::float64) create(factor);
  if (dtype == DType::float32) create(single);
  if (dtype == DType::float16) create(float16_from_float(single));
  if (dtype == DType::bfloat16) create(bfloat16_from_float(single));
}

}  // namespace ddprun::comm
