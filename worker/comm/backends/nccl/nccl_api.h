#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "worker/comm/backends/nccl/shrink.h"

// The functions of the CUDA runtime and of NCCL that this back end calls. The build needs only their headers: the
// functions are found in the CUDA module at run time, so that every build has the back end.
namespace ddprun::comm {

// clang-format off
#define DDPRUN_CUDA_FUNCTIONS(each) \
  each(cudaDeviceGetDefaultMemPool) \
  each(cudaDeviceGetPCIBusId)       \
  each(cudaEventCreateWithFlags)    \
  each(cudaEventDestroy)            \
  each(cudaEventQuery)              \
  each(cudaEventRecord)             \
  each(cudaFree)                    \
  each(cudaFreeHost)                \
  each(cudaGetDevice)               \
  each(cudaGetDeviceCount)          \
  each(cudaGetErrorName)            \
  each(cudaGetErrorString)          \
  each(cudaMemGetInfo)              \
  each(cudaMemPoolTrimTo)           \
  each(cudaMemcpyAsync)             \
  each(cudaMemsetAsync)             \
  each(cudaPointerGetAttributes)    \
  each(cudaSetDevice)               \
  each(cudaStreamCreateWithFlags)   \
  each(cudaStreamDestroy)           \
  each(cudaStreamQuery)             \
  each(cudaStreamWaitEvent)

// The headers have templates of the same names.
#define DDPRUN_OVERLOADED_CUDA_FUNCTIONS(each) each(cudaMalloc) each(cudaMallocHost)

#define DDPRUN_NCCL_FUNCTIONS(each) \
  each(ncclAllGather)               \
  each(ncclAllReduce)               \
  each(ncclBroadcast)               \
  each(ncclCommAbort)               \
  each(ncclCommDeregister)          \
  each(ncclCommDestroy)             \
  each(ncclCommFinalize)            \
  each(ncclCommGetAsyncError)       \
  each(ncclCommInitRankConfig)      \
  each(ncclCommRegister)            \
  each(ncclGetErrorString)          \
  each(ncclGetLastError)            \
  each(ncclGetUniqueId)             \
  each(ncclGetVersion)              \
  each(ncclGroupEnd)                \
  each(ncclGroupStart)              \
  each(ncclMemAlloc)                \
  each(ncclMemFree)                 \
  each(ncclRecv)                    \
  each(ncclRedOpCreatePreMulSum)    \
  each(ncclRedOpDestroy)            \
  each(ncclReduce)                  \
  each(ncclReduceScatter)           \
  each(ncclSend)

// clang-format on

// Members are null where the library is older than the headers of this build.
#if DDPRUN_NCCL_HAS_SCALABLE
#define DDPRUN_SCALABLE_NCCL_FUNCTIONS(each) each(ncclCommInitRankScalable)
#else
#define DDPRUN_SCALABLE_NCCL_FUNCTIONS(each)
#endif
#if DDPRUN_NCCL_HAS_SHRINK
#define DDPRUN_SHRINKING_NCCL_FUNCTIONS(each) each(ncclCommShrink)
#else
#define DDPRUN_SHRINKING_NCCL_FUNCTIONS(each)
#endif
#if DDPRUN_NCCL_HAS_REVOKE
#define DDPRUN_REVOKING_NCCL_FUNCTIONS(each) each(ncclCommRevoke)
#else
#define DDPRUN_REVOKING_NCCL_FUNCTIONS(each)
#endif
#define DDPRUN_NEWER_NCCL_FUNCTIONS(each) \
  DDPRUN_SCALABLE_NCCL_FUNCTIONS(each) DDPRUN_SHRINKING_NCCL_FUNCTIONS(each) DDPRUN_REVOKING_NCCL_FUNCTIONS(each)

struct NcclApi {
  cudaError_t (*cudaMalloc)(void**, std::size_t) = nullptr;
  cudaError_t (*cudaMallocHost)(void**, std::size_t) = nullptr;
#define DDPRUN_MEMBER(name) decltype(&::name) name = nullptr;
  DDPRUN_CUDA_FUNCTIONS(DDPRUN_MEMBER)
  DDPRUN_NCCL_FUNCTIONS(DDPRUN_MEMBER)
  DDPRUN_NEWER_NCCL_FUNCTIONS(DDPRUN_MEMBER)
#undef DDPRUN_MEMBER
};

// NCCL has all of these functions but the newer ones from this version on.
inline constexpr int oldest_nccl = 21903;
static_assert(NCCL_VERSION_CODE >= oldest_nccl);

// Opens the CUDA module at the first call. Throws what CudaModule throws, and Errc::unsupported for an older NCCL.
const NcclApi& api();

}  // namespace ddprun::comm
