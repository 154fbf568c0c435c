#include "worker/comm/backends/nccl/cuda_check.h"

#include <string>
#include <string_view>

#include "common/error.h"
#include "worker/comm/backends/nccl/nccl_api.h"
#include "worker/cuda/cuda_error.h"

namespace ddprun::comm {
namespace {

std::string appended(std::string_view text) {
  return text.empty() ? "" : fmt::format("; {}", text);
}

// NCCL prints the reason of these itself, where it is asked to.
bool has_printed_reason(ncclResult_t result) {
  return result == ncclUnhandledCudaError || result == ncclSystemError || result == ncclInternalError;
}

}  // namespace

void check_cuda(cudaError_t result, const char* function, int device) {
  if (result == cudaSuccess) return;
  throw make_error(Errc::io, "{} failed on cuda:{}: {} ({}){}", function, device, api().cudaGetErrorString(result),
                   api().cudaGetErrorName(result), appended(meaning_of_cuda_error(result).advice));
}

void check_nccl(ncclResult_t result, const char* function, int device, const char* detail) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const auto code = result == ncclInvalidUsage ? Errc::usage : Errc::connection_lost;
  throw make_error(code, "{} failed on cuda:{}: {}{}{}", function, device, api().ncclGetErrorString(result),
                   appended(detail == nullptr ? "" : detail),
                   has_printed_reason(result) ? "; NCCL_DEBUG=WARN makes it print the reason" : "");
}

}  // namespace ddprun::comm
