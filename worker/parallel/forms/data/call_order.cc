#include "worker/parallel/forms/data/call_order.h"

namespace ddprun {

std::optional<std::size_t> CallOrder::next_user() const {
  const std::size_t at = now_.size();
  if (at == 0 || at > last_.size() || now_.back() != last_[at - 1]) return std::nullopt;
  for (std::size_t i = at; i < last_.size(); ++i)
    if (last_[i].kind == Kind::forward_begins || last_[i].kind == Kind::backward_begins) return last_[i].index;
  return std::nullopt;
}

}  // namespace ddprun
