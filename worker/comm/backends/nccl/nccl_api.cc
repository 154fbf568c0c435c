#include "ddprun/worker/comm/backends/nccl/nccl_api.h"

#include <type_traits>

#include "ddprun/worker/cuda/cuda_module.h"

namespace ddprun::comm {
namespace {

NcclApi find_functions(const CudaModule& module) {
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
