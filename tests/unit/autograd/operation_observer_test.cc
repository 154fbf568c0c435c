#include "worker/autograd/operation_observer.h"

#include "common/error.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/reduce.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// Writes down its calls: "(name" begins, ")" ends, "<name module cost wanted" a backward function.
class Listener : public autograd::OperationObserver {
 public:
  void forward_begins(const char* name) override { text += std::string("(") + name; }
  double result_computed(const char*, const std::vector<Variable>& inputs, const Tensor& result) override {
    text += " " + std::to_string(inputs.size()) + " " + to_string(result.shape());
    return 5;
  }
  void forward_ends() override { text += ")"; }
  void backward_begins(const char* name, const std::string& module, double cost, int wanted) override {
    text += std::string("<") + name + " " + module + " " + std::to_string(static_cast<int>(cost)) + " " +
            std::to_string(wanted);
  }
  void backward_ends() override { text += ">"; }

  std::string text;
};

Variable parameter(const Shape& shape) {
  Tensor values = Tensor::empty(shape);
  values.fill(0.5F);
  return Variable(values, true);
}

}  // namespace

TEST_CASE("an observer sees each operation forward and backward, with its module and cost") {
  const Variable x = parameter({2, 3}), w = parameter({4, 3});
  const std::string name = "fc";
  Listener listener;
  {
    const autograd::ObservationScope scope(listener);
    Variable y;
    {
      const autograd::NameScope module(name);
      y = relu(linear(x.detach(), w, Variable()));
    }
    CHECK(listener.text == "(linear 3 [2, 4])(relu 1 [2, 4])");
    listener.text.clear();
    sum(y).backward();
    CHECK_THAT(listener.text, Catch::EndsWith("<relu fc 5 1><linear fc 5 1>"));
  }
  listener.text.clear();
  sum(relu(w)).backward();
  CHECK(listener.text.empty());
}

TEST_CASE("an operation that throws has ended for its observer, one that did not begin is not seen") {
  const Variable a = parameter({2, 3}), b = parameter({2, 2});
  Listener listener;
  const autograd::ObservationScope scope(listener);
  CHECK_THROWS_AS(matmul(a, b), Error);
  CHECK(listener.text == "(matmul)");
}

TEST_CASE("what a checkpointed function computes again lies within its backward function") {
  const Variable x = parameter({2, 2});
  Listener listener;
  const autograd::ObservationScope scope(listener);
  const Variable y = autograd::checkpoint([](const std::vector<Variable>& inputs) { return relu(inputs[0]); }, {x});
  listener.text.clear();
  sum(y).backward();
  CHECK_THAT(listener.text, Catch::EndsWith("<checkpoint  0 1(input 1 [2, 2])(relu 1 [2, 2])<relu  5 1><input  5 1>>"));
}
