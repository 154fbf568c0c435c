#include "worker/autograd/deferred_output.h"

#include <utility>

namespace ddprun::autograd {
namespace {

thread_local DeferredOutput* deferred = nullptr;

}  // namespace

DeferredOutput::DeferredOutput(bool wanted) : wanted_(wanted), before_(std::exchange(deferred, this)) {}
DeferredOutput::~DeferredOutput() {
  deferred = before_;
}

bool DeferredOutput::take(const Variable& weight) {
  if (deferred == nullptr || !deferred->wanted_ || deferred->weight_.defined()) return false;
  deferred->weight_ = weight;
  return true;
}

}  // namespace ddprun::autograd
