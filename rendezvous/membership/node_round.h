#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/node_info.h"
#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"

namespace ddprun {

// The round of one node as its session client knows it, over all sessions of the node: what the server has said of it,
// whether the workers may go on in it without a session, and what JOIN tells the next server.
//
// The server of a session knows that the round runs from the start, change or resumption of it. If the session is lost
// then, the workers have a lease (SESSIONS.md, "Lost sessions"), for which the node may keep the round.
//
// Ownership: a value. Threads: not thread-safe. Errors: proposed() and changed() throw Errc::protocol for a round that
// has another node in this node's place.
class NodeRound {
 public:
  using Time = std::chrono::steady_clock::time_point;

  NodeRound(std::string node, std::chrono::milliseconds heartbeat_timeout)
      : node_(std::move(node)), heartbeat_timeout_(heartbeat_timeout) {}

  void proposed(const Round& round);
  void changed(const RoundChanged& change);
  // Those of another generation are ignored: started() returns null then, the others false. A round is resumed only if
  // it has been kept.
  const Round* started(const SessionStarted& frame);
  bool resumed(const RoundResumed& frame);
  bool replaced(const WorkersReplaced& frame);
  void not_replaced(const ReplacementRefused& frame);

  // This node is ready: store_port as for Rendezvous::ready().
  void ready(std::uint16_t store_port) { store_port_ = store_port; }
  // The session was lost. known_at: when the last message was sent that the server has answered. Returns the time for
  // which the workers may go on; a round that was kept, and that no server has resumed, has the rest of its lease.
  std::chrono::milliseconds session_lost(Time now, Time known_at);
  // The workers run on without a session, or have ended by themselves (done). Returns false if there is no round.
  bool keep(bool done);
  // The round goes on no more in this node, whatever happens to the session.
  void end() { runs_ = kept_ = false; }

  bool kept() const { return kept_; }
  Time lease_end() const { return lease_end_; }
  // Returns whether this node has the workers' store of the round.
  bool is_led_by(const std::string& node) const { return round_ && round_->members.front().node_id == node; }
  // Returns what a server has to know of the latest round; nullopt before the first.
  std::optional<FormerRound> former() const;
  // Returns the latest round as an electorate, now that it goes on; nullopt where this node does not know all of its
  // nodes.
  std::optional<Round> electorate(const RoundResumed& resumed) const;

 private:
  void adopt(const Round& round, const char* what);

  std::string node_;
  std::chrono::milliseconds heartbeat_timeout_;
  std::optional<Round> round_;  // the latest proposed
  std::uint16_t store_port_ = 0;
  Time lease_end_{};   // for the round that was running when the session was lost
  bool kept_ = false;  // this node's workers of that round run; no server has resumed it
  bool done_ = false;  // if so: they have ended by themselves
  bool runs_ = false;  // the server of this session knows that the round runs
};

}  // namespace ddprun
