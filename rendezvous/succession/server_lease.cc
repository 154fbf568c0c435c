#include "rendezvous/succession/server_lease.h"

#include <algorithm>

namespace ddprun {

ServerLease::ServerLease(std::string server, Duration length)
    : self_{.node = std::move(server), .inherited = {}}, length_(length) {}

ServerLease::ServerLease(Time now, ServerName self, Duration length, Electorate electorate)
    : self_(std::move(self)), length_(length), electorate_(std::move(electorate)), number_(1), elected_(now) {
  began_ = electorate_.confirmed() == electorate_.newest().version;  // without the votes of others
  confirm();
}

bool ServerLease::may_decide(Time now) {
  if (!began_) return !elected_.has_value();
  if (now < supported_until_) return true;
  if (!is_supported(now)) return false;
  // The next check is due when the support of the first node ends that counts now.
  Time first = now + length_;
  for (const auto& [node, support] : support_)
    if (support.sent + length_ > now) first = std::min(first, support.sent + length_);
  supported_until_ = first;
  return true;
}

bool ServerLease::is_over(Time now) {
  return began_ ? !may_decide(now) : elected_ && now >= *elected_ + length_;
}

bool ServerLease::is_supported(Time now) const {
  const auto supports = [&](const std::string& node) {
    const auto found = support_.find(node);
    return found != support_.end() && now < found->second.sent + length_;
  };
  return electorate_.confirmed_keeps(self_.node, supports, [&](const auto& node) { return ended_.contains(node); });
}

ElectorateVersion ServerLease::adopt(std::vector<std::string> nodes) {
  if (!self_.node.empty() && std::ranges::count(nodes, self_.node) == 0) nodes.push_back(self_.node);
  const ElectorateVersion version{.term = self_.term, .number = ++number_};
  electorate_.adopt({.version = version, .nodes = std::move(nodes)}, electorate_.confirmed());
  confirm();
  return version;
}

void ServerLease::acknowledged(const std::string& node, Time sent, ElectorateVersion known) {
  ended_.erase(node);
  auto& support = support_[node];
  support.sent = std::max(support.sent, sent);
  const bool news = known > support.known;
  support.known = std::max(support.known, known);
  if (news) confirm();
}

void ServerLease::ended(const std::string& node) {
  ended_.insert(node);
  support_.erase(node);
  supported_until_ = {};
  confirm();
}

void ServerLease::confirm() {
  const auto newest = electorate_.newest().version;
  if (newest == ElectorateVersion() || electorate_.confirmed() == newest) return;
  const auto knows = [&](const std::string& node) {
    const auto found = support_.find(node);
    return found != support_.end() && found->second.known >= newest;
  };
  const bool enough =
      awaits_support() ? electorate_.elects([&](const auto& node) { return node == self_.node || knows(node); })
                       : electorate_.keeps(self_.node, knows, [&](const auto& node) { return ended_.contains(node); });
  if (!enough) return;
  electorate_.confirm(newest);
  began_ = true;
  supported_until_ = {};
  news_ = newest;
}

}  // namespace ddprun
