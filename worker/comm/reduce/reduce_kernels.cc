#include "ddprun/worker/comm/reduce/reduce_kernels.h"

#include <cstring>

#include "ddprun/worker/comm/reduce/variant.h"

namespace ddprun::comm {

void reduce(ReduceOp op, DType dtype, void* output, const void* left, const void* right, std::size_t count) {
  const void* const inputs[] = {left, right};
  kernels().reduce(op, dtype, &output, 1, inputs, 2, count, 1);
}

void reduce_all(ReduceOp op, DType dtype, std::span<void* const> outputs, std::span<const void* const> inputs,
                std::size_t count) {
  const int divisor = op == ReduceOp::average ? static_cast<int>(inputs.size()) : 1;
  kernels().reduce(op, dtype, outputs.data(), outputs.size(), inputs.data(), inputs.size(), count, divisor);
}

bool needs_preparation(ReduceOp op) {
  return op == ReduceOp::premultiplied_sum;
}

DType prepared_type(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 ? DType::float32 : dtype;
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
  if (op != ReduceOp::average) return;  // an average of whole numbers was refused before
  kernels().divide(values.dtype, values.data, values.count, ranks);
}

}  // namespace ddprun::comm
