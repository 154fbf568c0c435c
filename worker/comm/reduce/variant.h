#pragma once

#include <cstddef>
#include <span>

#include "common/dtype.h"
#include "worker/comm/reduction.h"

namespace ddprun::comm {

// The loops of reduce_kernels.h, compiled for one kind of processor. All variants have the same results bit for bit,
// except in NaNs. Pointers need no alignment.
struct KernelVariant {
  const char* name;
  bool (*supported)();  // tells whether this processor supports it
  // outputs[k][i] := op over inputs[k][i] in the order of k; sums are divided by divisor, unless it is 1. Outputs may
  // be among the inputs.
  void (*reduce)(ReduceOp op, DType dtype, void* const* outputs, std::size_t outputs_count, const void* const* inputs,
                 std::size_t inputs_count, std::size_t count, int divisor);
  // For 16-bit floats the output is float32 and must not overlap the input; round() converts back.
  void (*multiply)(DType dtype, void* output, const void* input, std::size_t count, double factor);
  void (*round)(DType dtype, void* output, const float* values, std::size_t count);
  void (*divide)(DType dtype, void* data, std::size_t count, int divisor);
  // The memory must not overlap. copy_from_peer() is for what another rank has written, copy_for_peers() to where other
  // ranks have read and will read. copy_past_caches() uses non-temporal stores, for memory that is not read soon.
  void (*copy)(void* to, const void* from, std::size_t bytes);
  void (*copy_from_peer)(void* to, const void* from, std::size_t bytes);
  void (*copy_for_peers)(void* to, const void* from, std::size_t bytes);
  void (*copy_past_caches)(void* to, const void* from, std::size_t bytes);
  // Prefetches the lines of memory that this rank will write.
  void (*prefetch_for_writing)(void* memory, std::size_t bytes);
};

// The variants in this build, the best last; every processor supports the first. To add one: its file, and one row in
// variant.cc.
std::span<const KernelVariant* const> kernel_variants();
// Looks for the best variant that this processor supports.
const KernelVariant& best_kernels();
// Returns the same, found once. Inline, as every small collective asks for it.
inline const KernelVariant& kernels() {
  static const KernelVariant& best = best_kernels();
  return best;
}

// Returns whether this x86 processor has F16C, which not every compiler's __builtin_cpu_supports() knows.
bool has_f16c();

extern const KernelVariant plain_kernels, avx2_kernels, avx512_kernels;

}  // namespace ddprun::comm
