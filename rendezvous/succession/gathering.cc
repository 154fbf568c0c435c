#include "rendezvous/succession/gathering.h"

#include <algorithm>

namespace ddprun {

void Gathering::came(const std::string& node) {
  here_.insert(node);
  living_.insert(node);
  ended_.erase(node);
}

void Gathering::ended(const std::string& node) {
  here_.erase(node);
  ended_.insert(node);
}

bool Gathering::is_complete(Time now, const Electorate& electorate) {
  auto missing = electorate.newest().nodes;
  std::erase_if(missing, [&](const auto& node) { return here_.contains(node) || ended_.contains(node); });
  const bool some_live = std::ranges::any_of(missing, [&](const auto& node) { return living_.contains(node); });
  if (!since_) since_ = now;
  due_ = *since_ + (some_live ? bounds_.living : bounds_.any);
  return missing.empty() || now >= *due_;
}

}  // namespace ddprun
