#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/succession/gathering.h"
#include "rendezvous/succession/server_lease.h"
#include "rendezvous/succession/succession.h"
#include "tests/simulation/virtual_time.h"

namespace ddprun::testing::election {

struct Join {
  std::uint64_t term = 0;
};
struct Beat {
  ServerName server;
  bool decides = false;
  Time sent{};
  NodeSet newest;
  ElectorateVersion confirmed;
};
struct Seen {
  std::uint64_t term = 0;
  Time sent{};
  ElectorateVersion known;
};
struct Probed {};  // the answer of the kernel of a node whose process has ended
struct Elected {
  ServerName server;
  bool decides = false;
};
using Message = std::variant<Join, Beat, Seen, Probed, VoteRequest, VoteReply, Elected>;

class Job;

// A process: the agent of a node, and the server in it.
class Process {
 public:
  Process(Job& job, std::string id, std::optional<ServerName> target, bool survives_tie);

  void begin_as_first(const std::vector<std::string>& nodes);
  void tick();
  // Its connection to the server is reset; the server lives.
  void lose_session();
  // Its node leaves the job, and joins it again. That of a server does so a while later.
  void leave();
  void receive(const std::string& from, const Message& message);

  const std::string id;
  bool alive = true;
  bool frozen = false;
  std::deque<std::function<void()>> held;  // what came while it was frozen
  Succession succession;
  std::optional<ServerLease> lease;  // it serves
  std::optional<ServerName> target;  // of its sessions
  bool at_endpoint = false;          // it looks for the server at the endpoint of the job

 private:
  void on(const std::string& from, const Join& join);
  void on(const std::string& from, const Beat& beat);
  void on(const std::string& from, const Seen& seen);
  void on(const std::string& from, const Probed&);
  void on(const std::string& from, const VoteRequest& request);
  void on(const std::string& from, const VoteReply& reply);
  void on(const std::string& from, const Elected& elected);
  void act(const SuccessionActions& actions);
  void end_given_up();
  void serve();
  void serve_afresh();
  bool deposed();
  bool gathers();
  void tell_confirmed();
  void decide_on_nodes();
  void send_beat(const std::string& to);

  Job& job_;
  std::map<std::string, Time> sessions_;  // of the server here: when a node was heard last
  std::optional<Gathering> gathering_;    // the server here has been elected and has not decided yet
  std::optional<Time> supported_;         // since when it may decide, while it gathers nodes
  bool decided_ = false;                  // it has had the support to
  std::optional<NodeSet> round_;          // the last one that it has decided on, as the nodes are told
  std::uint64_t first_sets_ = 0;          // the number of the last set as a first server
  Time outside_until_{};                  // the node of the server here is in no round
  bool follows_ = false;
  Time heard_{};
  Duration suspicion_;  // after which silence it may give the server up
  Time next_beat_{};
};

}  // namespace ddprun::testing::election
