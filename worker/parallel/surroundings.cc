#include "worker/parallel/surroundings.h"

namespace ddprun {

SurroundingsRestored::SurroundingsRestored(const Surroundings& from) : names_(from.names_), autocast_(from.autocast_) {
  if (!from.records_) no_grad_.emplace();
  if (from.checks_) anomaly_.emplace();
  for (const auto& make : from.contexts_) contexts_.push_back(make());
}

SurroundingsRestored::~SurroundingsRestored() {
  while (!contexts_.empty()) contexts_.pop_back();  // scopes end in the reverse order
}

}  // namespace ddprun
