// Every row of the table of operations on an emulated CUDA device, against the CPU: values, gradients, dtypes,
// autocast.
#include <map>
#include <string>
#include <vector>

#include "worker/tensor/kernels.h"
#include "tests/numerics/operation_table.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

[[maybe_unused]] const bool has_devices = use_emulated_cuda(1);
const Device device{DeviceType::cuda, 0};

void check_alike(const Outcome& found, const Outcome& expected, double tolerance) {
  CHECK(found.value.device() == device);
  CHECK(difference(found.value.to(Device{}), expected.value) < tolerance);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    INFO("gradient of input " << i);
    CHECK(found.gradients[i].device() == device);
    CHECK(difference(found.gradients[i].to(Device{}), expected.gradients[i], expected.gradient_scale()) < tolerance);
  }
}

}  // namespace

TEST_CASE("every operation gives on a CUDA device what it gives on the CPU, in each floating-point type") {
  const std::map<DType, double> tolerances = {
      {DType::float64, 1e-11}, {DType::float32, 2e-5}, {DType::bfloat16, 0.03}, {DType::float16, 0.005}};
  for (const OperationRow& row : operation_table()) {
    for (const auto& [dtype, tolerance] : tolerances) {
      INFO(row.name << " in " << name_of(dtype));
      const Outcome expected = run(row, widened(inputs_of(row, dtype)));
      Outcome found;
      CHECK_NOTHROW(found = run(row, inputs_of(row, dtype, device)));
      if (!found.value.defined()) continue;
      CHECK(found.value.dtype() == dtype);
      check_alike(found, expected, tolerance);
    }
  }
}

TEST_CASE("every operation gives the same bits on a CUDA device each time") {
  for (const OperationRow& row : operation_table()) {
    INFO(row.name);
    const Outcome first = run(row, inputs_of(row, DType::float32, device)),
                  second = run(row, inputs_of(row, DType::float32, device));
    CHECK(same_bits(first.value.to(Device{}), second.value.to(Device{})));
    for (std::size_t i = 0; i < first.gradients.size(); ++i)
      CHECK(same_bits(first.gradients[i].to(Device{}), second.gradients[i].to(Device{})));
  }
}

TEST_CASE("under autocast every operation gives on a CUDA device what it gives on the CPU") {
  for (const DType lower : {DType::bfloat16, DType::float16}) {
    for (const OperationRow& row : operation_table()) {
      INFO(row.name << " under " << name_of(lower));
      auto inputs = inputs_of(row, DType::float32);
      for (Tensor& input : inputs) input = input.to(lower).to(DType::float32);
      const Outcome expected = run(row, widened(inputs));
      for (Tensor& input : inputs) input = input.to(device);
      const autograd::AutocastScope scope(lower);
      check_alike(run(row, inputs), expected, 0.03);
    }
  }
}

TEST_CASE("an operand in the host's memory is an error that names both devices") {
  for (const OperationRow& row : operation_table()) {
    for (std::size_t moved = 0; row.inputs.size() > 1 && moved < row.inputs.size(); ++moved) {
      INFO(row.name << ", input " << moved);
      std::vector<Variable> variables;
      for (const Tensor& input : inputs_of(row, DType::float32)) variables.emplace_back(input, true);
      variables[moved] = Variable(variables[moved].value().to(device), true);
      CHECK_THROWS_WITH(row.function(variables), Catch::Contains("cpu:0") && Catch::Contains("cuda:0"));
    }
  }
}
