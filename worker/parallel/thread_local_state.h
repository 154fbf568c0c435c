#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker/autograd/autocast.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/deferred_output.h"
#include "worker/autograd/function.h"
#include "worker/autograd/node.h"

namespace ddprun {

// The scopes of a thread on which results of a forward pass depend: recording, autocast, names of modules, whether
// results are checked (AnomalyScope) and every ContextScope. Other threads that compute a part of the pass make them
// again.
//
// A value. Threads: constructed on the thread whose scopes it has, and read by any number. Errors: none.
class ThreadLocalState {
 public:
  ThreadLocalState() = default;  // captures the scopes of this thread

 private:
  friend class ThreadLocalStateGuard;
  bool records_ = grad_enabled();
  bool checks_ = autograd::anomaly_detection();
  DType autocast_ = autograd::autocast_dtype();
  autograd::NameScopes names_ = autograd::name_scopes();
  std::vector<autograd::ContextScope::Maker> contexts_ = autograd::ContextScope::makers();
};

// Makes the scopes on this thread, for the lifetime of the object: it is destroyed on the same thread, before any scope
// that was opened earlier.
class ThreadLocalStateGuard {
 public:
  explicit ThreadLocalStateGuard(const ThreadLocalState& from);
  ~ThreadLocalStateGuard();
  ThreadLocalStateGuard(const ThreadLocalStateGuard&) = delete;
  ThreadLocalStateGuard& operator=(const ThreadLocalStateGuard&) = delete;

 private:
  const autograd::NameScopesRestored names_;
  const autograd::AutocastScope autocast_;
  const autograd::DeferredOutput whole_scores_{false};  // results of several threads are put together
  std::optional<NoGradScope> no_grad_;
  std::optional<autograd::AnomalyScope> anomaly_;
  std::vector<std::shared_ptr<void>> contexts_;
};

}  // namespace ddprun
