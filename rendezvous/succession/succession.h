#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/succession/electorate.h"

namespace ddprun {

struct VoteRequest {
  std::string candidate;
  std::uint64_t term = 0;    // that would begin
  ElectorateVersion newest;  // set that the candidate knows
  bool trial = false;        // whether it would get the vote: nothing is promised

  bool operator==(const VoteRequest&) const = default;
};
struct VoteReply {
  std::uint64_t term = 0;  // of the request
  bool trial = false;      // it was one
  bool granted = false;
  std::uint64_t voted = 0;           // the last term in which the voter has voted
  std::optional<ServerName> server;  // that the voter follows, or is
};

// The owner of a Succession carries these actions out.
struct AskVotes {
  std::vector<std::string> nodes;
  VoteRequest request;
};
struct ProbeServer {  // find out whether the process of this node has ended: server_ended()
  std::string node;
};
struct ServeJob {  // this node is elected: serve the rendezvous, with the electorate(), and tell these nodes
  ServerName self;
  std::vector<std::string> nodes;
  std::string lost;              // the node of the server before
  std::set<std::string> living;  // those that were heard since that was
};
struct FollowServer {  // open a session with the server of this node
  ServerName server;
};
struct TryEndpoint {};  // nobody was elected: open a session with the server at the endpoint of the job
using SuccessionAction = std::variant<AskVotes, ProbeServer, ServeJob, FollowServer, TryEndpoint>;
using SuccessionActions = std::vector<SuccessionAction>;

// Who serves a job's rendezvous after its server, one node's part of the election. A state machine: events and the time
// in, actions out.
//
//   following --session lost, or a vote for another--> searching --majority of votes--> serving
//
// A node that has lost its session votes, and stands, once the server is known to have ended, or the lease that it gave
// the server has: support_bound after the last message of the server (ServerLease). Until then it may find that the
// server lives. The nodes stand in the order of their ranks, some time apart. A candidate asks first whether it would
// be elected, so that terms grow by elections alone. A voter refuses candidates that know fewer sets of nodes than it.
//
// A node that has a session with a silent server votes and stands too, after the same time, and keeps the session until
// it has a majority in the trial, or votes for a candidate that has: it gives the server up then. So a node that alone
// hears nothing of the server loses nothing.
//
// Where so few nodes are left that nobody can be elected, the node tries the endpoint of the job: at once in a job of
// two nodes, of which the one without the server is no majority, unless tie_break lets it survive.
//
// Ownership: a value. Threads: not thread-safe. Errors: none thrown. The owner calls tick() no later than next_tick().
class Succession {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  struct Options {
    std::string self;  // the id of this node
    Duration support_bound = std::chrono::seconds(2);
    Duration heartbeat_timeout = std::chrono::seconds(5);  // for which the nodes may need to elect a server
    bool survives_tie = false;                             // one of two nodes goes on without the server
    // The time between two candidates, and for which one waits for votes.
    Duration turn = std::chrono::milliseconds(60);
    Duration answer_bound = std::chrono::milliseconds(400);
  };

  explicit Succession(Options options) : options_(std::move(options)) {}

  // ---- the session

  // The server of this node has decided on a set of nodes, or confirmed one. Of a set without this node it takes no
  // notice: it could be elected no more, and keep others from it by what it knows.
  void adopt(NodeSet next, ElectorateVersion confirmed);
  void confirm(ElectorateVersion version) { electorate_.confirm(version); }
  // A server has answered. Without a name it is none that can be followed by another.
  void session_began(const std::optional<ServerName>& server);
  // heard: when the last message of the server came.
  SuccessionActions session_lost(Time now, Time heard);
  // The server of the session may be lost: it is silent. A message of it follows, or the session is lost later.
  SuccessionActions server_silent(Time now, Time heard);
  void server_heard();
  // Returns whether the node has given its server up since the last call: the session with it is to be ended before
  // anything else is received of it.
  bool take_given_up() { return std::exchange(given_up_, false); }
  // The server of this name ended, by the report of its kernel, or says that it ends.
  SuccessionActions server_ended(Time now, const std::string& node);
  // The server in this process has stopped deciding.
  SuccessionActions stepped_down(Time now);

  // ---- the other nodes

  VoteReply vote_asked(Time now, const VoteRequest& request);
  SuccessionActions vote_answered(Time now, const std::string& node, const VoteReply& reply);
  // A server has been elected. decides: it has the support to decide.
  SuccessionActions announced(Time now, const ServerName& server, bool decides);

  SuccessionActions tick(Time now);
  std::optional<Time> next_tick() const;

  const Electorate& electorate() const { return electorate_; }
  // Returns whether this node may follow the server with which it has opened a session: it has voted in no later term,
  // or nobody was elected then, since this server decides.
  bool accepts(const ServerName& server, bool decides) const {
    return server.term >= term_ || (decides && tries_endpoint_);
  }
  // Returns whether the server, which is lost or silent, is known to have ended, or its lease has.
  bool may_vote(Time now) const { return (searching() || silent_) && now >= free_at_; }
  // Returns when it tries the endpoint if nobody has been elected by then; none: it does already, or follows a server.
  std::optional<Time> patience_ends() const { return searching() ? endpoint_at_ : std::nullopt; }
  // Returns whether it has returned TryEndpoint, and no session has begun since.
  bool tries_endpoint() const { return phase_ == Phase::searching && tries_endpoint_; }
  bool searching() const { return phase_ == Phase::searching; }
  bool serving() const { return phase_ == Phase::serving; }
  const std::optional<ServerName>& server() const { return server_; }

 private:
  enum class Phase : std::uint8_t { following, searching, serving };

  Electorate alone_in(std::uint64_t term) const;
  bool elects_itself() const;  // one of two nodes, which needs no vote of the other
  bool may_be_elected() const;
  Duration patience(Duration later) const;
  Duration turn() const;
  void begin_search(Time now, Time free_at);
  void give_server_up(Time now);
  SuccessionActions act(Time now);
  SuccessionActions stand(Time now, bool trial);
  SuccessionActions count_votes(Time now);
  SuccessionActions consider(Time now, const ServerName& server, bool decides);
  std::vector<std::string> others() const;

  Options options_;
  Electorate electorate_;
  Phase phase_ = Phase::following;
  std::optional<ServerName> server_;  // that this node follows, or has lost
  std::uint64_t term_ = 0;            // the highest in which this node has voted, or followed a server
  std::string voted_for_;             // in that term
  bool silent_ = false;               // while following: the server is
  bool given_up_ = false;
  Time free_at_{};               // when the lease of the server that is lost or silent ends
  bool ended_ = false;           // the lost server has
  bool tries_endpoint_ = false;  // while searching
  std::optional<Time> probe_at_, stand_at_, endpoint_at_;
  std::optional<VoteRequest> asking_;
  std::set<std::string> votes_;
  std::set<std::string> answers_;
  std::set<std::string> heard_;        // other nodes, since the server was
  std::optional<ServerName> elected_;  // to be followed once this node is free
};

}  // namespace ddprun
