#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/agent_relay.h"
#include "rendezvous/round.h"

namespace ddprun {

// The requests that the agents of one job have made of each other (agent_relay.h), as the rendezvous server knows them:
// who asks, which node has the rank, and how much output is in flight. A state machine: messages and changes of the
// membership go in, messages for nodes come out.
//
// A node can end only its own requests and answer only those that were sent to it; messages with other numbers are
// ignored. When a round puts a rank on another node, its followers are sent there. A follower whose rank's node was
// lost waits for the next round.
//
// Ownership: a value. Threads: not thread-safe. Errors: none thrown.
class RelayTable {
 public:
  static constexpr std::size_t max_requests = 256;  // of one job; further ones are refused

  struct Delivery {
    std::string node;
    RelayMessage message;
  };
  using Deliveries = std::vector<Delivery>;

  // round: the one whose workers run; null if none do.
  Deliveries received(const std::string& node, const RelayMessage& message, const Round* round);
  // Call when the nodes have been told to start the workers.
  Deliveries round_started(const Round& round);
  // The node has no session any more. how: "left: SIGTERM" or "was lost: its connection closed", for messages.
  Deliveries node_left(const std::string& node, const std::string& how);

 private:
  struct Request {
    std::string asker;
    std::uint64_t number = 0;  // the asker's
    int rank = 0;
    std::string target;         // the node that has the rank; empty while none does
    std::string host;           // the target's host, or that of the last one
    bool follows = true;        // false: it asks for a signal
    std::size_t in_flight = 0;  // bytes that the target has sent and the asker has not taken
    std::size_t earlier = 0;    // the same of former targets and of notices from here; it counts as taken first
  };
  // By the server's number. Numbers are never used again, so that a late answer to a former one is not mistaken.
  using Requests = std::map<std::uint64_t, Request>;

  void on(const std::string& node, const FollowRank& message, const Round* round);
  void on(const std::string& node, const UnfollowRank& message, const Round* round);
  void on(const std::string& node, const RankOutput& message, const Round* round);
  void on(const std::string& node, const OutputTaken& message, const Round* round);
  void on(const std::string& node, const SignalRank& message, const Round* round);
  void on(const std::string& node, const SignalAnswer& message, const Round* round);

  Requests::iterator asked_by(const std::string& node, std::uint64_t number, bool follows);
  Requests::iterator sent_to(const std::string& node, std::uint64_t number, bool follows);
  std::string refusal(int rank, const Round* round) const;
  void send_to_target(Request request, const RoundMember& member, bool again);
  void move(std::uint64_t number, const Round& round);
  Requests::iterator refuse(Requests::iterator request, const std::string& why);
  void notice(Request& request, std::string text);
  void tell(const Request& request, RankOutput::Kind kind, std::string text);
  void post(const std::string& node, RelayMessage message);
  Deliveries take_deliveries();

  Requests requests_;
  std::uint64_t next_number_ = 1;
  Deliveries deliveries_;
};

}  // namespace ddprun
