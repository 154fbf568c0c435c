#pragma once

#include <cstdint>
#include <optional>

#include "worker/tensor/cuda/module/strided_index.h"

namespace ddprun::cuda {

// A copy whose sources are neighbours along another dimension than its targets: through tiles in shared memory, so that
// both are read and written as neighbours.
struct Transposition {
  std::int64_t rows, columns;        // neighbours in the source are along rows, in the target along columns
  std::int64_t to_row, from_column;  // strides; the other two are 1
  std::int64_t batch_count;
  StridedIndex<2> batches;  // target and source of each (rows, columns)
};

// Returns none where the copy is another one, or so small that its tiles would be mostly empty. REQUIRES: one shape.
std::optional<Transposition> transposition_of(const View& from, const View& to);

void transpose(DeviceContext& device, const Transposition& transposition, const View& from, const View& to);

}  // namespace ddprun::cuda
