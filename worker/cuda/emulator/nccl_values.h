#pragma once

#include <cstddef>
#include <nccl.h>

// The arithmetic of emulated NCCL, by plain loops in the order of the ranks.
namespace ddprun::cuda::emulator {

std::size_t size_of(ncclDataType_t type);

// Returns the value of a premultiplied sum's factor.
double scalar_value(const void* scalar, ncclDataType_t type);

// sum[i] := sum[i] op values[i]. An average adds; 16-bit floats are rounded after each step.
void combine(ncclRedOp_t op, ncclDataType_t type, std::byte* sum, const std::byte* values, std::size_t count);
// values[i] := values[i] * factor.
void multiply(ncclDataType_t type, std::byte* values, double factor, std::size_t count);

}  // namespace ddprun::cuda::emulator
