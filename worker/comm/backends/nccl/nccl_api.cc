#include "worker/comm/backends/nccl/nccl_api.h"

#include <type_traits>

#include "worker/cuda/cuda_module.h"
#include "worker/cuda/library_version.h"

namespace ddprun::comm {
namespace {

// Runs before the functions are looked up: otherwise the error would name only the functions that an older NCCL lacks.
void check_version(const CudaModule& module) {
  auto* const get_version = module.symbol<decltype(ncclGetVersion)>("ncclGetVersion");
  int code = 0;
  if (get_version(&code) != ncclSuccess) return;
  check_at_least({"NCCL", library_version(code), reinterpret_cast<const void*>(get_version)},
                 library_version(oldest_nccl));
}

NcclApi find_functions(const CudaModule& module) {
  check_version(module);
  NcclApi found;
#define DDPRUN_FIND(name) found.name = module.symbol<std::remove_pointer_t<decltype(found.name)>>(#name);
  DDPRUN_CUDA_FUNCTIONS(DDPRUN_FIND)
  DDPRUN_OVERLOADED_CUDA_FUNCTIONS(DDPRUN_FIND)
  DDPRUN_NCCL_FUNCTIONS(DDPRUN_FIND)
#undef DDPRUN_FIND
#define DDPRUN_FIND(name) found.name = module.optional_symbol<std::remove_pointer_t<decltype(found.name)>>(#name);
  DDPRUN_NEWER_NCCL_FUNCTIONS(DDPRUN_FIND)
#undef DDPRUN_FIND
  return found;
}

}  // namespace

const NcclApi& api() {
  static const NcclApi found = find_functions(CudaModule::get());
  return found;
}

}  // namespace ddprun::comm
