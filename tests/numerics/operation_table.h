#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/autograd/autocast.h"
#include "worker/autograd/variable.h"

namespace ddprun::test {

// One input of a row: its elements are spread over (low, high), all different up to 997 of them.
struct InputSpec {
  Shape shape;
  double low = -1;
  double high = 1;
};

// One way to call a differentiable operation. Every operation that autograd/ops declares has at least one row, and
// every row is checked against finite differences, in all dtypes, on a second device, with operands on two devices, and
// against PyTorch's figures (operation_figures.inc). To add one: its row in operation_table.cc and, for the figures,
// its counterpart in scripts/make-operation-figures.
struct OperationRow {
  std::string name;              // as declared; after a space, the particulars of this call
  autograd::CastClass autocast;  // its conversion of inputs under autocast
  std::function<Variable(const std::vector<Variable>&)> function;
  std::vector<InputSpec> inputs;
  std::size_t saved = 0;          // tensors that the (last) operation keeps for the backward pass
  bool straight_through = false;  // the gradient is not the derivative: no finite differences

  std::string operation() const { return name.substr(0, name.find(' ')); }
};

const std::vector<OperationRow>& operation_table();

// Returns an input's values: element i is low + (high - low) ((i * factor mod 997) + 0.25) / 997, a factor by input.
Tensor pattern_tensor(const InputSpec& spec, std::size_t input, DType dtype = DType::float64, Device device = {});

// The outcome of a row for inputs of a type: the result, and the gradients of a weighted sum over it.
struct Outcome {
  Tensor value;
  std::vector<Tensor> gradients;
  // The largest magnitude in all gradients. In 16 bits a gradient whose terms cancel, as a bias's may, is compared with
  // it.
  double gradient_scale() const;
};
Outcome run(const OperationRow& row, const std::vector<Tensor>& inputs);
std::vector<Tensor> inputs_of(const OperationRow& row, DType dtype, Device device = {});
std::vector<Tensor> widened(const std::vector<Tensor>& tensors);
// Returns the weights of the sum over a value, with the value's shape.
Tensor weights_for(const Tensor& value);

}  // namespace ddprun::test
