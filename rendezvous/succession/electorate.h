#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

// Numbers the sets of nodes of a job: those of a later server are higher.
struct ElectorateVersion {
  std::uint64_t term = 0;    // of the server that has decided on the set; each election begins a term
  std::uint64_t number = 0;  // of the set in it, from 1; 0: none yet

  auto operator<=>(const ElectorateVersion&) const = default;
};

// The nodes of a round, by their ids.
struct NodeSet {
  ElectorateVersion version;
  std::vector<std::string> nodes;  // by group rank, which is the order of succession
};

// A server of a job: one for each term.
struct ServerName {
  std::string node;
  std::uint64_t term = 0;
  ElectorateVersion inherited;  // the newest set that it knew when its term began; none in the first term

  bool operator==(const ServerName&) const = default;
};

// The sets of nodes that decide who serves the rendezvous: the last one that is confirmed, and those after it. A set is
// confirmed once a majority of it, and of each set before it, knows it; until then a decision takes a majority of each.
// So any two decisions have a node in common, as in Raft's change of members by joint consensus.
//
// A node that has not been told of the sets before a new one can support others, and not be elected itself, until the
// set is confirmed.
//
// Server and nodes change it by the same functions. A value. Threads: not thread-safe. Errors: none thrown.
class Electorate {
 public:
  using Supporters = std::function<bool(const std::string& node)>;

  // The server decided on this set, when the last one that it knew to be confirmed was `confirmed`. Older sets are
  // ignored; one that the same server decided on before, and that was not confirmed, is replaced.
  void adopt(NodeSet next, ElectorateVersion confirmed);
  // The set of this version is confirmed.
  void confirm(ElectorateVersion version);
  // The node follows the server of a new term, whose first set is the newest one that the server knew. known: that is
  // the newest one here as well; otherwise its nodes are unknown here, and no election succeeds until a later set is
  // confirmed.
  void begin_term(std::uint64_t term, bool known);

  // The newest set (without nodes if these are not known here), and the version of the last that is confirmed.
  NodeSet newest() const { return sets_.empty() ? NodeSet{.version = confirmed_, .nodes = {}} : sets_.back(); }
  ElectorateVersion confirmed() const { return confirmed_; }
  // Returns whether the last confirmed set is known, and so all sets to which a decision is subject.
  bool complete() const { return !sets_.empty() && sets_.front().version == confirmed_; }
  std::set<std::string> all_nodes() const;

  // Returns whether a majority of each set supports an election.
  bool elects(const Supporters& supports) const;
  // Returns whether so many nodes of each set support the server that no election can succeed without one of them: half
  // of them, the server included, or more than half if it is none of them. Nodes that have ended are not counted.
  bool keeps(const std::string& server, const Supporters& supports, const Supporters& has_ended) const;
  // Returns the same for the last confirmed set alone, without a majority of which nobody is elected.
  bool confirmed_keeps(const std::string& server, const Supporters& supports, const Supporters& has_ended) const;

 private:
  std::vector<NodeSet> sets_;    // none is older than the confirmed one
  ElectorateVersion confirmed_;  // none: no set is
};

}  // namespace ddprun
