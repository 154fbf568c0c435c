#include "worker/parallel/forms/data/use_hook.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "worker/autograd/function.h"
#include "worker/autograd/variable.h"

namespace ddprun {
namespace {

using Kind = CallOrder::Kind;

// An identity operation that calls in_backward when the backward pass reaches it.
Variable marked(const Variable& variable, Tensor value, std::function<void()> in_backward) {
  const autograd::Function operation("gather_parameters", {variable});
  return operation.record(std::move(value), {}, [in_backward = std::move(in_backward)](autograd::Backward& pass) {
    in_backward();
    pass.add(0, pass.dense_grad());
  });
}

bool has_tape(const Variable& variable) {
  return grad_enabled() && variable.requires_grad();
}

class UseHook final : public nn::CallHook {
 public:
  UseHook(UseListener& listener, std::size_t user) : listener_(listener), user_(user) {}

  std::vector<Variable> before(std::vector<Variable> inputs) override {
    const auto first = std::ranges::find_if(inputs, has_tape);
    if (first != inputs.end())
      *first = marked(*first, first->value(), [this] { listener_.use_ends(Kind::backward_ends, user_); });
    listener_.use_begins(Kind::forward_begins, user_);
    return inputs;
  }

  // The backward pass may reach any of the results first.
  std::vector<Variable> after(std::vector<Variable> results) override {
    const auto has_begun = std::make_shared<bool>(false);
    for (Variable& result : results) {
      Tensor value = listener_.is_in_parameters(user_, result.value()) ? result.value().clone() : result.value();
      if (has_tape(result))
        result = marked(result, std::move(value), [this, has_begun] {
          if (!std::exchange(*has_begun, true)) listener_.use_begins(Kind::backward_begins, user_);
        });
      else
        result = Variable(std::move(value));
    }
    listener_.use_ends(Kind::forward_ends, user_);
    return results;
  }

 private:
  UseListener& listener_;
  const std::size_t user_;
};

}  // namespace

std::unique_ptr<nn::CallHook> make_use_hook(UseListener& listener, std::size_t user) {
  return std::make_unique<UseHook>(listener, user);
}

}  // namespace ddprun
