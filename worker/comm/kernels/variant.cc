#include "ddprun/worker/comm/kernels/variant.h"

#include <array>

namespace ddprun::comm {
namespace {

constexpr std::array table = {
    &plain_kernels,
#if defined(DDPRUN_X86_KERNELS)
    &avx2_kernels,
    &avx512_kernels,
#endif
};

const KernelVariant& best() {
  const KernelVariant* found = &plain_kernels;
  for (const auto* each : table)
    if (each->supported()) found = each;
  return *found;
}

}  // namespace

std::span<const KernelVariant* const> kernel_variants() {
  return table;
}

const KernelVariant& kernels() {
  static const KernelVariant& chosen = best();
  return chosen;
}

}  // namespace ddprun::comm
