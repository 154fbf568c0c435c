#include "rendezvous/succession/server_lease.h"

#include <algorithm>

namespace ddprun {

ServerLease::ServerLease(std::string server, LeaseBounds bounds, std::uint64_t earlier)
    : self_{.node = std::move(server), .inherited = {}}, bounds_(bounds), number_(earlier) {}

ServerLease::ServerLease(Time now, ServerName self, LeaseBounds bounds, Electorate electorate)
    : self_(std::move(self)), bounds_(bounds), electorate_(std::move(electorate)), number_(1), elected_(now) {
  began_ = electorate_.confirmed() == electorate_.newest().version;  // without the votes of others
  confirm(now);
}

bool ServerLease::may_decide(Time now) {
  if (is_over(now)) return false;
  return began_ ? keeps_support(now) : !elected_;
}

bool ServerLease::is_over(Time now) {
  if (over_) return true;
  if (began_)
    over_ = !keeps_support(now) && now >= *supported_until_ + (bounds_.patience - bounds_.support);
  else
    over_ = elected_ && now >= *elected_ + bounds_.patience;
  return over_;
}

bool ServerLease::keeps_support(Time now) {
  if (!supported_until_ || now >= *supported_until_) supported_until_ = end_of_support();
  return now < *supported_until_;
}

// Fewer nodes support the server the later it is.
ServerLease::Time ServerLease::end_of_support() const {
  const auto supported_at = [&](Time time) {
    const auto supports = [&](const std::string& node) {
      const auto found = support_.find(node);
      return found != support_.end() && time < found->second.sent + bounds_.support;
    };
    return electorate_.confirmed_keeps(self_.node, supports, [&](const auto& node) { return ended_.contains(node); });
  };
  std::vector<Time> ends{Time::min()};
  for (const auto& [node, support] : support_) ends.push_back(support.sent + bounds_.support);
  std::ranges::sort(ends);
  const auto first = std::ranges::partition_point(ends, supported_at);
  constexpr Time never = Time::max() - std::chrono::hours(1);  // later times are computed from it
  return first == ends.end() ? never : *first;
}

ElectorateVersion ServerLease::adopt(Time now, std::vector<std::string> nodes) {
  const ElectorateVersion version{.term = self_.term, .number = ++number_};
  electorate_.adopt({.version = version, .nodes = std::move(nodes)}, electorate_.confirmed());
  lacking_ = 0;
  confirm(now);
  return version;
}

void ServerLease::acknowledged(Time now, const std::string& node, Time sent, ElectorateVersion known) {
  if (now >= sent + bounds_.support) return;
  const auto newest = electorate_.newest().version;
  const bool knew = knows(now, node, newest);
  if (ended_.erase(node) > 0) supported_until_.reset();  // it is counted again
  auto& support = support_[node];
  support.sent = std::max(support.sent, sent);
  support.known = std::max(support.known, known);
  const bool news = !knew && knows(now, node, newest);
  if (news && (lacking_ == 0 || --lacking_ == 0)) confirm(now);
}

bool ServerLease::knows(Time now, const std::string& node, ElectorateVersion version) const {
  const auto found = support_.find(node);
  return found != support_.end() && found->second.known >= version && now < found->second.sent + bounds_.support;
}

void ServerLease::ended(Time now, const std::string& node) {
  if (is_over(now)) return;
  const auto support = support_.find(node);
  if (began_ && (support == support_.end() || now >= support->second.sent + bounds_.support)) return;
  ended_.insert(node);
  support_.erase(node);
  supported_until_.reset();
  lacking_ = 0;
  confirm(now);
}

void ServerLease::confirm(Time now) {
  const auto [newest, nodes] = electorate_.newest();
  if (over_ || newest == ElectorateVersion() || electorate_.confirmed() == newest) return;
  const auto know = [&, version = newest](const std::string& node) { return knows(now, node, version); };
  const bool enough =
      awaits_support() ? electorate_.elects([&](const auto& node) { return node == self_.node || know(node); })
                       : electorate_.keeps(self_.node, know, [&](const auto& node) { return ended_.contains(node); });
  if (!enough) {
    const auto counted = nodes.size() - static_cast<std::size_t>(std::ranges::count_if(
                                            nodes, [&](const auto& node) { return ended_.contains(node); }));
    const auto knowing = static_cast<std::size_t>(std::ranges::count_if(nodes, know)) + 1;  // and this one
    lacking_ = counted > 2 * knowing ? (counted + 1) / 2 - knowing : 0;
    return;
  }
  electorate_.confirm(newest);
  began_ = true;
  supported_until_.reset();
  news_ = newest;
}

}  // namespace ddprun
