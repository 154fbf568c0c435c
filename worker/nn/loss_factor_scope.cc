#include "worker/nn/loss_factor_scope.h"

#include <memory>
#include <utility>

namespace ddprun::nn {
namespace {

thread_local double current_factor = 1;

}  // namespace

LossFactorScope::LossFactorScope(double factor) : before_(std::exchange(current_factor, factor)) {}
LossFactorScope::~LossFactorScope() {
  current_factor = before_;
}

double LossFactorScope::current() {
  return current_factor;
}

autograd::ContextScope::Maker LossFactorScope::maker() const {
  return [factor = current_factor] { return std::make_shared<LossFactorScope>(factor); };
}

}  // namespace ddprun::nn
