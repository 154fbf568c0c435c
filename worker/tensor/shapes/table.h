#pragma once

#include "worker/tensor/kernels.h"

namespace ddprun::shapes {

// The operations of cpu devices in a ShapeOnlyScope: results have the shapes, types and layouts of those of
// cpu::make_table(), and no values unless they are small.
kernels::Table make_table();

}  // namespace ddprun::shapes
