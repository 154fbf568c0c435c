#include "rendezvous/succession/server_lease.h"

#include <algorithm>

namespace ddprun {

ServerLease::ServerLease(std::string server, Duration length, std::uint64_t earlier)
    : self_{.node = std::move(server), .inherited = {}}, length_(length), number_(earlier) {}

ServerLease::ServerLease(Time now, ServerName self, Duration length, Electorate electorate)
    : self_(std::move(self)), length_(length), electorate_(std::move(electorate)), number_(1), elected_(now) {
  began_ = electorate_.confirmed() == electorate_.newest().version;  // without the votes of others
  confirm();
}

bool ServerLease::may_decide(Time now) {
  if (is_over(now)) return false;
  return began_ || !elected_;
}

bool ServerLease::is_over(Time now) {
  if (!over_) over_ = began_ ? !keeps_support(now) : elected_ && now >= *elected_ + length_;
  return over_;
}

bool ServerLease::keeps_support(Time now) {
  if (now < supported_until_) return true;
  if (!is_supported(now)) return false;
  // The next check is due when the support of the first node ends that counts now.
  Time first = now + length_;
  for (const auto& [node, support] : support_)
    if (support.sent + length_ > now) first = std::min(first, support.sent + length_);
  supported_until_ = first;
  return true;
}

bool ServerLease::is_supported(Time now) const {
  const auto supports = [&](const std::string& node) {
    const auto found = support_.find(node);
    return found != support_.end() && now < found->second.sent + length_;
  };
  return electorate_.confirmed_keeps(self_.node, supports, [&](const auto& node) { return ended_.contains(node); });
}

ElectorateVersion ServerLease::adopt(std::vector<std::string> nodes) {
  const ElectorateVersion version{.term = self_.term, .number = ++number_};
  electorate_.adopt({.version = version, .nodes = std::move(nodes)}, electorate_.confirmed());
  lacking_ = 0;
  confirm();
  return version;
}

void ServerLease::acknowledged(const std::string& node, Time sent, ElectorateVersion known) {
  if (ended_.erase(node) > 0) supported_until_ = {};  // it is counted again
  auto& support = support_[node];
  support.sent = std::max(support.sent, sent);
  const bool news = known > support.known;
  support.known = std::max(support.known, known);
  if (news && (lacking_ == 0 || --lacking_ == 0)) confirm();
}

// Support that has run out before this does not count again because there are fewer nodes now.
void ServerLease::ended(Time now, const std::string& node) {
  if (is_over(now)) return;
  ended_.insert(node);
  support_.erase(node);
  supported_until_ = {};
  lacking_ = 0;
  confirm();
}

void ServerLease::confirm() {
  const auto [newest, nodes] = electorate_.newest();
  if (over_ || newest == ElectorateVersion() || electorate_.confirmed() == newest) return;
  const auto knows = [&, version = newest](const std::string& node) {
    const auto found = support_.find(node);
    return found != support_.end() && found->second.known >= version;
  };
  const bool enough =
      awaits_support() ? electorate_.elects([&](const auto& node) { return node == self_.node || knows(node); })
                       : electorate_.keeps(self_.node, knows, [&](const auto& node) { return ended_.contains(node); });
  if (!enough) {
    const auto counted = nodes.size() - static_cast<std::size_t>(std::ranges::count_if(
                                            nodes, [&](const auto& node) { return ended_.contains(node); }));
    const auto knowing = static_cast<std::size_t>(std::ranges::count_if(nodes, knows)) + 1;  // and this one
    lacking_ = counted > 2 * knowing ? (counted + 1) / 2 - knowing : 0;
    return;
  }
  electorate_.confirm(newest);
  began_ = true;
  supported_until_ = {};
  news_ = newest;
}

}  // namespace ddprun
