// Every row of the table of operations: gradients, dtypes, devices, PyTorch's figures; and no operation without a row.
#include "tests/numerics/operation_table.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/tensor/kernels.h"
#include "tests/support/numerics.h"
#include "tests/support/saved_tensors.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

double weighted_sum(const Tensor& tensor) {
  double total = 0;
  const auto all = values(tensor), weights = values(weights_for(tensor.to(DType::float64)));
  for (std::size_t i = 0; i < all.size(); ++i) total += all[i] * weights[i];
  return total;
}

// name, the weighted sum of the result, those of the gradients
struct Figures {
  const char* name;
  std::vector<double> sums;
};
const std::vector<Figures> figures_of_torch = {
#include "tests/numerics/operation_figures.inc"
};

}  // namespace

TEST_CASE("every operation's gradient agrees with finite differences") {
  for (const OperationRow& row : operation_table()) {
    if (row.straight_through) continue;
    INFO(row.name);
    const auto scalar = [&](const std::vector<Variable>& in) {
      const Variable result = row.function(in);
      return sum(mul(result, Variable(weights_for(result.value()))));
    };
    CHECK(grad_check(scalar, inputs_of(row, DType::float64)) < 1e-7);
  }
}

TEST_CASE("every operation agrees with PyTorch, values and gradients") {
  std::map<std::string, std::vector<double>> expected;
  for (const Figures& figures : figures_of_torch) expected[figures.name] = figures.sums;
  for (const OperationRow& row : operation_table()) {
    if (row.operation() == "dropout") continue;  // other random numbers
    INFO(row.name);
    REQUIRE(expected.count(row.name) == 1);
    const Outcome outcome = run(row, inputs_of(row, DType::float64));
    std::vector<double> sums{weighted_sum(outcome.value)};
    for (const Tensor& gradient : outcome.gradients) sums.push_back(weighted_sum(gradient));
    CHECK(difference(sums, expected[row.name]) < 1e-8);
  }
}

TEST_CASE("every operation gives the same in each floating-point type, within its precision") {
  const std::map<DType, double> tolerances = {{DType::float32, 2e-5}, {DType::bfloat16, 0.03}, {DType::float16, 0.005}};
  for (const OperationRow& row : operation_table()) {
    for (const auto& [dtype, tolerance] : tolerances) {
      INFO(row.name << " in " << name_of(dtype));
      const auto inputs = inputs_of(row, dtype);
      const Outcome narrow = run(row, inputs), wide = run(row, widened(inputs));
      CHECK(narrow.value.dtype() == dtype);
      CHECK(difference(narrow.value, wide.value) < tolerance);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        INFO("gradient of input " << i);
        CHECK(narrow.gradients[i].dtype() == dtype);
        CHECK(difference(narrow.gradients[i], wide.gradients[i], wide.gradient_scale()) < tolerance);
      }
    }
  }
}

TEST_CASE("every operation runs on a second device, with the same bits") {
  const Device second{DeviceType::cpu, 1};
  for (const OperationRow& row : operation_table()) {
    INFO(row.name);
    const Outcome here = run(row, inputs_of(row, DType::float32)),
                  there = run(row, inputs_of(row, DType::float32, second));
    CHECK(there.value.device() == second);
    CHECK(same_bits(here.value, there.value));
    for (std::size_t i = 0; i < here.gradients.size(); ++i) {
      CHECK(there.gradients[i].device() == second);
      CHECK(same_bits(here.gradients[i], there.gradients[i]));
    }
  }
}

namespace {

// Returns the type that a row computes in under autocast to `lower`, which its first input may have, else float32.
DType type_under_autocast(const OperationRow& row, DType lower, bool first_is_lower) {
  using autograd::CastClass;
  if (row.autocast == CastClass::lower) return lower;
  if (row.autocast == CastClass::keep && first_is_lower) return lower;
  if (row.autocast == CastClass::widest && first_is_lower && row.inputs.size() == 1) return lower;
  return DType::float32;
}

}  // namespace

TEST_CASE(
    "under autocast every operation computes in the type of its class, and gradients come in those of its inputs") {
  for (const DType lower : {DType::bfloat16, DType::float16}) {
    for (const OperationRow& row : operation_table()) {
      for (const bool first_is_lower : {false, true}) {
        INFO(row.name << " under " << name_of(lower) << (first_is_lower ? ", the first input too" : ""));
        auto inputs = inputs_of(row, DType::float32);
        for (Tensor& input : inputs) input = input.to(lower).to(DType::float32);
        if (first_is_lower) inputs[0] = inputs[0].to(lower);
        const Outcome expected = run(row, widened(inputs));
        const autograd::AutocastScope scope(lower);
        const Outcome found = run(row, inputs);
        CHECK(found.value.dtype() == type_under_autocast(row, lower, first_is_lower));
        CHECK(difference(found.value, expected.value) < 0.02);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          CHECK(found.gradients[i].dtype() == inputs[i].dtype());
          CHECK(difference(found.gradients[i], expected.gradients[i], expected.gradient_scale()) < 0.03);
        }
      }
    }
  }
}

TEST_CASE("an operand on another device is an error that names both devices and the module") {
  for (const OperationRow& row : operation_table()) {
    for (std::size_t moved = 0; row.inputs.size() > 1 && moved < row.inputs.size(); ++moved) {
      INFO(row.name << ", input " << moved);
      std::vector<Variable> variables;
      for (const Tensor& input : inputs_of(row, DType::float32)) variables.emplace_back(input, true);
      variables[moved] = Variable(variables[moved].value().to(Device{DeviceType::cpu, 1}), true);
      const std::string name = "fc1";
      const autograd::NameScope scope(name);
      CHECK_THROWS_WITH(row.function(variables),
                        Catch::Contains("cpu:0") && Catch::Contains("cpu:1") && Catch::Contains("in module fc1"));
    }
  }
}

TEST_CASE("every operation saves as many tensors as its row says") {
  for (const OperationRow& row : operation_table()) {
    INFO(row.name);
    std::vector<Variable> variables;
    for (const Tensor& input : inputs_of(row, DType::float32)) variables.emplace_back(input, true);
    CHECK(testing::saved_tensors(row.function(variables)).size() == row.saved);
  }
}

TEST_CASE("every operation that a header declares has a row") {
  std::set<std::string> rows;
  for (const OperationRow& row : operation_table()) rows.insert(row.operation());
  const std::regex declaration(R"(^(?:Variable|MaxResult|std::vector<Variable>) (\w+)\()");
  int declared = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(SOURCE_FOLDER) / "worker/autograd/ops")) {
    if (entry.path().extension() != ".h" || entry.path().stem() == "mapped") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, declaration)) continue;
      INFO(entry.path() << ": " << match[1]);
      ++declared;
      CHECK(rows.count(match[1]) == 1);
    }
  }
  CHECK(declared >= 60);
}
