#include "worker/autograd/placement_check.h"

#include "common/error.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/reduce.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::autograd;

namespace {

Variable parameter(const std::string& name, const LocalAxes& local_over) {
  Variable value(Tensor::full({2}, 1), true);
  declare_placement(value, name, local_over);
  return value;
}

// A collective over "tensor" that does nothing.
Variable collective(const Variable& input, PlacementChange change) {
  const Function operation("collective", {input});
  return placed(operation, input, "tensor", change,
                operation.record(input.value(), {}, [](Backward& pass) { pass.add(0, pass.grad()); }));
}

}  // namespace

TEST_CASE("an operation on a value of each rank and one that all have is refused where it is checked") {
  const Variable bias = parameter("fc.bias", {}), weight = parameter("fc.weight", {"tensor"});
  const std::string module = "h.0.mlp";
  const NameScope scope(module);
  CHECK_NOTHROW(add(weight, bias));
  const PlacementCheckScope check;
  CHECK_THROWS_WITH(add(weight, bias),
                    "add in module h.0.mlp: over the axis tensor fc.weight is each rank's own, and fc.bias is the same "
                    "at all ranks: a collective is missing");
  CHECK_THROWS_WITH(add(bias, mul(weight, weight)),
                    "add in module h.0.mlp: over the axis tensor fc.bias is the same at all ranks, and the result of "
                    "mul in module h.0.mlp is each rank's own: a collective is missing");
  CHECK_NOTHROW(add(weight, weight));
  CHECK_NOTHROW(add(bias, bias));
}

TEST_CASE("values that lie differently over different axes are refused, and those of which nothing is known are not") {
  const PlacementCheckScope check;
  CHECK_THROWS_WITH(add(parameter("a", {"tensor"}), parameter("b", {"context", "tensor"})),
                    Catch::Contains("over the axis context a is the same at all ranks, and b is each rank's own"));
  const Variable mask(Tensor::full({2}, 1)), own = parameter("a", {"tensor"});
  const Variable masked = mul(own, mask);
  CHECK_NOTHROW(add(masked, own));
  CHECK_THROWS_AS(add(masked, parameter("b", {})), Error);
}

TEST_CASE("a collective makes one of the other, and is refused for a value that is none it expects") {
  const PlacementCheckScope check;
  const Variable all = parameter("bias", {}), own = parameter("weight", {"tensor"});
  const PlacementChange copy{.from_local = false, .to_local = true}, reduce{.from_local = true, .to_local = false};
  CHECK_NOTHROW(mul(collective(all, copy), own));
  CHECK_NOTHROW(add(collective(own, reduce), all));
  CHECK_THROWS_WITH(add(collective(all, copy), all), Catch::Contains("the result of collective is each rank's own"));
  CHECK_THROWS_WITH(collective(all, reduce),
                    "collective: over the axis tensor bias is the same at all ranks, but the collective is for a value "
                    "that is each rank's own");
  CHECK_THROWS_WITH(collective(own, copy), Catch::EndsWith("a value that is the same at all ranks"));
}

TEST_CASE("what is computed again lies as what was computed first") {
  const PlacementCheckScope check;
  const Variable own = parameter("weight", {"tensor"}), all = parameter("bias", {});
  const auto squared = [&](const std::vector<Variable>& inputs) { return mul(inputs[0], inputs[0]); };
  const Variable result = checkpoint(squared, {own});
  CHECK_THROWS_AS(add(result, all), Error);
  CHECK_THROWS_AS(checkpoint([&](const std::vector<Variable>& inputs) { return add(inputs[0], all); }, {own}), Error);
  sum(add(result, own)).backward();
  CHECK(own.grad().data<float>()[0] == 3);
}
