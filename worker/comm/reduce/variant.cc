#include "worker/comm/reduce/variant.h"

#include <array>

#if defined(DDPRUN_X86_KERNELS)
#include <cpuid.h>
#endif

namespace ddprun::comm {
namespace {

constexpr std::array table = {
    &plain_kernels,
#if defined(DDPRUN_X86_KERNELS)
    &avx2_kernels,
    &avx512_kernels,
#endif
};

}  // namespace

#if defined(DDPRUN_X86_KERNELS)
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::span<const KernelVariant* const> kernel_variants() {
  return table;
}

const KernelVariant& best_kernels() {
  const KernelVariant* found = &plain_kernels;
  for (const auto* each : table)
    if (each->supported()) found = each;
  return *found;
}

}  // namespace ddprun::comm
