#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/succession/electorate.h"

namespace ddprun {

// How long the nodes' acknowledgements count.
struct LeaseBounds {
  using Duration = std::chrono::steady_clock::duration;
  Duration support{};   // an acknowledged message counts for this time from when it was sent
  Duration patience{};  // the lease is over after this time without acknowledgements, at least `support`
};

// Whether the server of a job may decide: as long as so many nodes of the last confirmed set support it that no other
// server can be elected. A node supports the server for LeaseBounds::support from the time at which the server sent the
// last message that the node has acknowledged; it supports no other server before it has heard nothing for longer than
// that, or knows that the server has ended. Until a job's first set is confirmed no other server can be elected, and
// this one decides; an elected one decides once its first set is confirmed.
//
// A server without support does not decide. It may again once it has the support again, since nodes that have voted for
// another server acknowledge nothing any more; after LeaseBounds::patience its lease is over for good. The owner asks
// is_over() before each event, and acts on it while it may_decide().
//
// Ownership: a value. Threads: not thread-safe. Errors: none thrown.
class ServerLease {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // The first server of a job, on this node. earlier: the number of the last set that this node decided on as the first
  // server of the same job before, if it was: nodes that remember that set know the later ones by their numbers.
  ServerLease(std::string server, LeaseBounds bounds, std::uint64_t earlier = 0);
  // One that has been elected at `now`, with what it knows of the electorate, where its term has begun.
  ServerLease(Time now, ServerName self, LeaseBounds bounds, Electorate electorate);

  bool may_decide(Time now);
  // It may not decide any more. An elected server gets the support of enough nodes within its patience, or never.
  bool is_over(Time now);
  // The job has these nodes from now on. Returns the version of the set. REQUIRES: may_decide(now)
  ElectorateVersion adopt(Time now, std::vector<std::string> nodes);
  // The node has acknowledged a message that was sent then, and knows the sets up to this one. An acknowledgement that
  // arrives late is none: the node may have supported another server since.
  void acknowledged(Time now, const std::string& node, Time sent, ElectorateVersion known);
  // Returns the version of a set that has been confirmed since the last call.
  std::optional<ElectorateVersion> take_confirmed() { return std::exchange(news_, std::nullopt); }
  // The node is known to have ended, or has left: it supports nobody any more. One whose support ran out before may
  // have supported another server, and counts as a node without support.
  void ended(Time now, const std::string& node);

  bool has_ended(const std::string& node) const { return ended_.contains(node); }
  const ServerName& server() const { return self_; }
  const Electorate& electorate() const { return electorate_; }

 private:
  // Elected, it needs a majority: another one may have been before, and the tie is not in its favour yet.
  bool awaits_support() const { return elected_ && !began_; }
  struct Support {
    Time sent{};
    ElectorateVersion known;
  };
  bool keeps_support(Time now);
  Time end_of_support() const;
  bool knows(Time now, const std::string& node, ElectorateVersion version) const;
  void confirm(Time now);

  ServerName self_;
  LeaseBounds bounds_;
  Electorate electorate_;
  std::uint64_t number_ = 0;
  std::optional<Time> elected_;
  bool began_ = false;       // a set of this term has been confirmed
  bool over_ = false;        // it has been without support for too long
  std::size_t lacking_ = 0;  // so many more nodes at least have to know the newest set before it is confirmed
  std::map<std::string, Support> support_;
  std::set<std::string> ended_;
  std::optional<Time> supported_until_;  // at least; none: to be found anew
  std::optional<ElectorateVersion> news_;
};

}  // namespace ddprun
