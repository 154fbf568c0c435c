#pragma once

#include <cstddef>
#include <span>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/reduction.h"

namespace ddprun::comm {

// The loops of reduce_kernels.h, compiled for one kind of processor. All variants give the same bits, but for those of
// a NaN. Pointers need no alignment.
struct KernelVariant {
  const char* name;
  bool (*supported)();  // by this processor
  // outputs[k][i] := op over all inputs[k][i], in their order; sums divided by divisor, unless that is 1. Outputs may
  // be among the inputs.
  void (*reduce)(ReduceOp op, DType dtype, void* const* outputs, std::size_t outputs_count, const void* const* inputs,
                 std::size_t inputs_count, std::size_t count, int divisor);
  // Of 16-bit floats, the output is float32, and lies apart; round() brings it back.
  void (*multiply)(DType dtype, void* output, const void* input, std::size_t count, double factor);
  void (*round)(DType dtype, void* output, const float* values, std::size_t count);
  void (*divide)(DType dtype, void* data, std::size_t count, int divisor);
  // The memory must not overlap. The second goes past the caches: for what nobody reads soon.
  void (*copy)(void* to, const void* from, std::size_t bytes);
  void (*copy_past_caches)(void* to, const void* from, std::size_t bytes);
};

// Those in this build, the best last; the first is the plain one, which every processor supports. A new one is its file
// and one row in variant.cc.
std::span<const KernelVariant* const> kernel_variants();
// The best that this processor supports.
const KernelVariant& kernels();

// Whether this processor, an x86, converts halves: not all compilers' __builtin_cpu_supports() know that name.
bool has_f16c();

extern const KernelVariant plain_kernels, avx2_kernels, avx512_kernels;

}  // namespace ddprun::comm
