#include "worker/comm/reduce/reduce_kernels.h"

#include <cstring>

namespace ddprun::comm {

void reduce(ReduceOp op, DType dtype, void* output, const void* left, const void* right, std::size_t count) {
  const void* const inputs[] = {left, right};
  kernels().reduce(op, dtype, &output, 1, inputs, 2, count, 1);
}

void prepare_reduction(double factor, ConstSpan input, void* output) {
  kernels().multiply(input.dtype, output, input.data, input.count, factor);
}

void finish_prepared(const void* values, Span output) {
  if (output.count == 0) return;
  if (prepared_type(output.dtype) != output.dtype) {
    kernels().round(output.dtype, output.data, static_cast<const float*>(values), output.count);
  } else if (values != output.data) {
    std::memcpy(output.data, values, output.bytes());
  }
}

void finish_reduction(ReduceOp op, Span values, int ranks) {
  if (op != ReduceOp::average) return;  // for an average the dtype is a float
  kernels().divide(values.dtype, values.data, values.count, ranks);
}

}  // namespace ddprun::comm
