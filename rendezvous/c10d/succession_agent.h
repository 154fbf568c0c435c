#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/host_port.h"
#include "common/timer.h"
#include "rendezvous/c10d/peer_call.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/server_choice.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/store/session_hub.h"
#include "rendezvous/succession/succession.h"
#include "rendezvous/trust/admission.h"

namespace ddprun {

struct SuccessionAgentOptions {
  HostPort endpoint;                      // of the job
  std::function<bool()> serves_endpoint;  // this process does, at present
  bool survives_tie = false;              // Succession::Options
  std::shared_ptr<const Credentials> credentials = nullptr;
  std::shared_ptr<const Admission> admission = nullptr;
};

// One agent's part in the election of the server that takes the place of a lost one: the shell of Succession. It
// listens at a port of its own, which other agents learn with the rounds, asks them for votes there, and serves the
// rendezvous there if it is elected. It takes part in jobs of several nodes that outlive the loss of a node.
//
// An elected server announces itself at the endpoint of the job, so that agents that come later find it.
//
// Ownership: the loop must outlive it. Threads: the loop's. Errors: none thrown; without a port it takes no part.
class SuccessionAgent final : public ServerChoice, public SessionHub {
 public:
  SuccessionAgent(boost::asio::io_context& loop, SuccessionAgentOptions options);
  ~SuccessionAgent() override;
  SuccessionAgent(const SuccessionAgent&) = delete;
  SuccessionAgent& operator=(const SuccessionAgent&) = delete;

  // The address at which this agent dials the endpoint. Call it before begin().
  void set_endpoint(const HostPort& endpoint) { target_ = options_.endpoint = endpoint; }
  // Called when target() has changed.
  void on_change(std::function<void()> listener) { changed_ = std::move(listener); }
  // Called when the node has given up a silent server with which it has a session: nothing more of that is received.
  void on_given_up(std::function<void()> listener) { given_up_ = std::move(listener); }
  // The server at the endpoint, in this process, has been started.
  void watch(HostedEndpoint& endpoint);
  // The agents elect a server, or this one finds the server that it has lost: it serves nothing at the endpoint yet.
  bool awaits_election() const;
  // The server of this agent, if it has been elected; otherwise null.
  HostedEndpoint* serving();

  void begin(NodeInfo& self, const JobPolicy& policy) override;
  std::optional<HostPort> target() override;
  bool is_own(const HostPort& target) const override;
  void attempt_failed(const HostPort& target) override;
  bool session_began(const ServerName& server, bool decides) override;
  void session_lost(Time heard) override;
  void server_silent(Time heard) override;
  void server_heard() override;
  std::optional<Time> patience_ends() const override;
  void server_ends() override;
  void moved(const HostPort& address) override;
  void adopt(const Round& round) override;
  void confirm(ElectorateVersion version) override;
  ElectorateVersion newest() const override;

  void on_open(SessionId session, const SessionPeer& peer) override;
  void on_frame(SessionId session, std::string frame) override;
  void on_close(SessionId session) override;
  std::string refusal_of(std::string_view frame_head) override;

 private:
  using Answered = std::function<void(const PeerAnswer&)>;

  void begin_again();
  bool serves_first() const;
  void try_port(const std::string& node, int tries);
  void act(const SuccessionActions& actions);
  void execute(const AskVotes& action);
  void execute(const ProbeServer& action);
  void execute(const ServeJob& action);
  void execute(const FollowServer& action);
  void execute(const TryEndpoint& action);
  void arm();
  void call(const std::string& node, const NodeFrame& frame, Answered answered);
  void call(const std::string& node, Answered answered);
  void call(const std::string& node, std::string frame, std::shared_ptr<const Credentials> credentials,
            Answered answered);
  void after(std::chrono::milliseconds pause, std::function<void()> what);
  void probe(const std::string& node, std::function<void()> ended);
  void probe_lost(const std::string& node, int tries);
  void deposed(bool elected);
  void announce();
  void heard(const std::string& node);
  void told(const std::string& node, const PeerAnswer& answer);
  // Returns whether the answer says that the node's process has ended.
  bool has_ended(const std::string& node, const PeerAnswer& answer) const {
    return answer.kind == PeerAnswer::Kind::refused && reached_.contains(node);
  }
  void aim(std::optional<HostPort> target);
  SuccessionListener listener(bool elected);
  std::string address_to_listen(const NodeInfo& self) const;
  bool is_forwarded(SessionId session) const { return forwarded_.contains(session); }

  boost::asio::io_context& loop_;
  SuccessionAgentOptions options_;
  std::string self_;
  JobPolicy policy_;
  std::optional<Succession> succession_;       // none: this agent takes no part
  std::unique_ptr<HostedEndpoint> own_;        // at this agent's port; it serves once elected
  std::string own_host_;                       // at which this agent dials it
  std::map<std::string, HostPort> addresses_;  // of the agents, by node
  std::set<std::string> tried_, reached_;      // nodes to whose ports connections were tried, and succeeded
  std::map<SessionId, SessionPeer> opened_;    // sessions at this agent's port before their first frame
  std::set<SessionId> forwarded_;              // sessions of agents with the elected server
  std::optional<HostPort> target_;
  std::optional<HostPort> followed_;  // the server of the last session, which may be there still
  bool pointed_ = false;              // a server that is not the job's any more has named the target
  HostedEndpoint* endpoint_ = nullptr;
  std::function<void()> changed_, given_up_;
  Timer timer_, announcement_;
  Succession::Time announced_{};  // at the endpoint
  std::chrono::milliseconds endpoint_pause_{0};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // calls that end later look for it
};

}  // namespace ddprun
