#include "worker/parallel/thread_local_state.h"

namespace ddprun {

ThreadLocalStateGuard::ThreadLocalStateGuard(const ThreadLocalState& from)
    : names_(from.names_), autocast_(from.autocast_) {
  if (!from.records_) no_grad_.emplace();
  if (from.checks_) anomaly_.emplace();
  for (const auto& make : from.contexts_) contexts_.push_back(make());
}

ThreadLocalStateGuard::~ThreadLocalStateGuard() {
  while (!contexts_.empty()) contexts_.pop_back();  // scopes end in the reverse order
}

}  // namespace ddprun
