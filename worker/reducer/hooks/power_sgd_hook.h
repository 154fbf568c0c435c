#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"
#include "worker/reducer/power_sgd_options.h"

namespace ddprun {

enum class PowerSgdForm {
  matrices,  // each parameter of two and more dimensions is a matrix, by its first dimension
  batched,   // the whole bucket is one square matrix
};

// PowerSGD (Vogels, Karimireddy, Jaggi 2019): sends a matrix M as the product of two of low rank, from one step of
// subspace iteration. P = average of M Q, made orthonormal; Q = average of transposed M P; the result is P transposed
// Q. What it leaves out of this rank's gradient is added to the next one (error feedback), and the next pass starts
// with Q (warm start). inner averages P, Q, and what is not compressed. Gradients in float64 are not compressed.
//
// State: the error of each bucket, each Q, and the number of passes.
std::unique_ptr<CommHook> make_power_sgd_hook(PowerSgdForm form, const PowerSgdOptions& options, ProcessGroup& group,
                                              std::unique_ptr<CommHook> inner);

}  // namespace ddprun
