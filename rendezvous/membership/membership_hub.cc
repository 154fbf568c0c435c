#include "rendezvous/membership/membership_hub.h"

#include <algorithm>
#include <concepts>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "rendezvous/membership/incompatible_agent.h"
#include "rendezvous/membership/relay_table.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/succession/server_lease.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

Membership::Time now() {
  return Membership::Clock::now();
}

std::int64_t to_us(Membership::Time time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

Membership::Time from_us(std::int64_t us) {
  return Membership::Time(std::chrono::microseconds(us));
}

// A node supports a server for support_bound() at least; the server stops deciding before. It gives up before the nodes
// do.
LeaseBounds lease_bounds(const JobPolicy& policy) {
  return {.support = policy.support_bound() - policy.keep_alive_interval / 4,
          .patience = policy.heartbeat_timeout() - policy.keep_alive_interval / 4};
}

std::int64_t wall_clock_us() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

// A membership with its timer and sessions. Shared by its sessions.
struct Job {
  Job(asio::io_context& loop, const JobPolicy& policy, MembershipOptions options)
      : membership(policy, options), timer(loop) {}

  Membership membership;
  asio::steady_timer timer;
  bool armed = false;
  std::map<std::string, SessionId> sessions;  // node id -> its current session
  RelayTable relay;
  std::optional<ServerLease> lease;               // in a job in which another server can be elected
  std::deque<std::function<void()>> held_events;  // while the lease lacks support
  Membership::Time support_asked{};               // of the nodes, while there are any
  std::map<std::string, SessionJoin> held;        // what nodes sent to an elected server, until it acts
  bool gathering = false;                         // it has been elected and does not act yet
  std::optional<Membership::Time> gathered;       // when it acts, once it has the support
};
using JobPtr = std::shared_ptr<Job>;

// Elected servers announce themselves at the endpoint more often.
constexpr std::chrono::seconds announcement_lasts{4};
// The time after which a server asks the nodes again for their support.
constexpr std::chrono::milliseconds support_pause{100};

using RoundStartListener = std::function<void(const std::string& run_id, std::int64_t generation)>;

struct Session {
  SessionPeer peer;
  JobPtr job;  // none before JOIN
  std::string node;
};

ServerFrame to_frame(RoundStarted&& what) {
  return SessionStarted{.generation = what.round.generation,
                        .master_addr = std::move(what.round.master_addr),
                        .master_port = what.round.master_port};
}
template <class What>
ServerFrame to_frame(What&& what) {
  return std::forward<What>(what);
}

}  // namespace

class MembershipHub::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, SessionSender& sender, MembershipHubOptions options)
      : loop_(loop), sender_(sender), options_(options) {}

  void open(SessionId id, const SessionPeer& peer) { sessions_[id].peer = peer; }

  void frame(SessionId id, const std::string& bytes) {
    NodeFrame frame;
    try {
      frame = decode_node_frame(bytes);
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
      // Another version of the protocol: refuse it by name, since a closed connection would make the agent redial.
      sender_.send(id, encode(ServerFrame{JoinRefused{error.what()}}));
      return sender_.close(id);
    }
    if (auto* join = std::get_if<SessionJoin>(&frame)) return handle_join(id, *join);
    if (auto* request = std::get_if<StatusRequest>(&frame)) return handle_request(id, *request);
    if (auto* request = std::get_if<StopRequest>(&frame)) return handle_request(id, *request);
    if (auto* elected = std::get_if<ServerElected>(&frame)) return handle_elected(id, *elected);
    if (std::holds_alternative<VoteAsked>(frame)) return sender_.close(id);
    const Session& session = sessions_.at(id);
    if (!session.job) throw make_error(Errc::protocol, "a session has to begin with JOIN");
    if (!is_current_session(id, session)) return;  // it has been dropped, or a newer session has taken over
    if (deposed(session.job)) return;
    if (std::visit([](const auto& one) { return needs_decision(one); }, frame))
      decide(session.job, [this, id, session, frame = std::move(frame)]() mutable {
        std::visit([&](auto& one) { handle(id, session, one); }, frame);
      });
    else
      std::visit([&](auto& one) { handle(id, session, one); }, frame);
  }

  void key(SessionId id, const std::string& peer_address, std::string_view key, std::string_view value) {
    auto agent = parse_incompatible_agent(key, value);
    if (!agent) return;
    agent->address = peer_address;
    incompatible_agents_[id] = *agent;
    const auto found = jobs_.find(agent->run_id);
    if (found == jobs_.end()) return refuse_mixed_kinds(*agent);
    const JobPtr job = found->second;
    if (deposed(job)) return;
    const bool fixed_ranks = job->membership.policy().fixed_ranks;
    if (fixed_ranks && agent->kind == IncompatibleAgent::Kind::static_) return;
    if (!fixed_ranks)
      decide(job, [this, job, why = conflict_text(*agent)] { deliver(job, job->membership.conflict(now(), why)); });
    refuse_incompatible(*agent);
  }

  void close(SessionId id) {
    close_incompatible(id);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    const Session session = std::move(found->second);
    sessions_.erase(found);
    if (session.job && is_current_session(id, session) && !deposed(session.job)) {
      session.job->sessions.erase(session.node);
      session.job->held.erase(session.node);
      if (session.job->lease && succession_.node_lost)
        succession_.node_lost(session.job->membership.policy().run_id, session.node);
      if (session.job->gathering) return;
      decide(session.job, [this, job = session.job, node = session.node] { end_session_of(job, node); });
    }
    if (session_end_) session_end_();
  }

  // No callback runs after this.
  void stop() {
    round_start_ = nullptr;
    session_end_ = nullptr;
    succession_ = {};
    for (auto& [run_id, job] : jobs_) {
      job->timer.cancel();
      job->held_events.clear();
    }
    jobs_.clear();
    sessions_.clear();
    incompatible_agents_.clear();
    refused_agents_.clear();
  }

  std::size_t sessions() const { return sessions_.size() + refused_agents_.size(); }
  std::size_t jobs() const { return jobs_.size(); }
  void refuse_new_jobs() { refusing_jobs_ = true; }
  std::vector<std::string> run_ids() const {
    std::vector<std::string> ids;
    for (const auto& [id, job] : jobs_) ids.push_back(id);
    return ids;
  }

  void announce_shutdown(const std::string& reason) {
    refusing_jobs_ = true;
    const std::string notice = encode(ServerFrame{SessionShutdown{reason}});
    const auto jobs = jobs_;
    for (const auto& [run_id, job] : jobs) {
      if (deposed(job)) continue;
      if (supported(job))
        deliver(job, job->membership.server_leaves(now(), "the rendezvous server shuts down: " + reason));
      if (job->membership.ended()) continue;
      for (const auto& [node, session] : std::exchange(job->sessions, {})) {
        sender_.send(session, notice);
        sender_.close(session);
      }
      job->timer.cancel();
      job->held_events.clear();
      jobs_.erase(run_id);
    }
  }

  void serve_elected(const JobPolicy& policy, const ServerName& self, const Electorate& electorate) {
    JobPtr job = std::make_shared<Job>(loop_, policy, options_.membership);
    job->lease.emplace(now(), self, lease_bounds(policy), electorate);
    job->gathering = true;
    jobs_[policy.run_id] = job;
    arm(job);
  }

  bool decides(const std::string& run_id) {
    const auto job = jobs_.find(run_id);
    return job != jobs_.end() && job->second->lease && job->second->lease->may_decide(now());
  }

  bool serves(const std::string& run_id) {
    const auto job = jobs_.find(run_id);
    return job != jobs_.end() && job->second->lease && !job->second->lease->is_over(now());
  }

  bool has_session(const std::string& run_id, const std::string& node) const {
    const auto job = jobs_.find(run_id);
    return job != jobs_.end() && job->second->sessions.contains(node);
  }

  void node_ended(const std::string& run_id, const std::string& node) {
    const auto found = jobs_.find(run_id);
    if (found == jobs_.end() || !found->second->lease || found->second->sessions.contains(node)) return;
    const JobPtr job = found->second;
    if (deposed(job)) return;
    job->lease->ended(now(), node);
    announce_confirmed(job);
    if (job->gathering && job->lease->may_decide(now())) gather(job);
  }

  void on_succession(SuccessionListener listener) { succession_ = std::move(listener); }
  void on_round_start(RoundStartListener listener) { round_start_ = std::move(listener); }
  void on_session_end(std::function<void()> listener) { session_end_ = std::move(listener); }

 private:
  // ---- agents of another rendezvous

  // torchrun's c10d and static agents do not share a run id either.
  void refuse_mixed_kinds(const IncompatibleAgent& agent) {
    for (const auto& [other_id, other] : incompatible_agents_)
      if (other.run_id == agent.run_id && other.kind != agent.kind && (other.ddprun || agent.ddprun)) {
        const IncompatibleAgent ours = other.ddprun ? other : agent;
        notify_static_agents(ours.run_id, conflict_text(other.ddprun ? agent : other));
        return refuse_incompatible(agent);
      }
  }

  // Throws to have the connection closed, except for a ddprun agent, which reads the reason from the store.
  void refuse_incompatible(const IncompatibleAgent& agent) {
    if (!agent.ddprun) throw Error(Errc::usage, refusal_text(agent));
    notify_static_agents(agent.run_id, refusal_text(agent));
  }

  void notify_static_agents(const std::string& run_id, const std::string& reason) {
    for (const auto& [id, agent] : incompatible_agents_)
      if (agent.ddprun && agent.run_id == run_id) refused_agents_.insert(id);
    sender_.set_key(static_refusal_wire_key(run_id), reason);
  }

  void close_incompatible(SessionId id) {
    const auto agent = incompatible_agents_.extract(id);
    if (agent.empty()) return;
    const bool last = std::none_of(refused_agents_.begin(), refused_agents_.end(), [&](SessionId other) {
      return other != id && incompatible_agents_.at(other).run_id == agent.mapped().run_id;
    });
    if (refused_agents_.erase(id) == 0) return;
    if (last) sender_.erase_key(static_refusal_wire_key(agent.mapped().run_id));
    if (session_end_) session_end_();
  }

  // Refuses a c10d agent whose run id other agents use with another rendezvous. A job that has formed is not affected.
  bool refuse_conflict(SessionId id, const JobPolicy& policy) {
    if (policy.fixed_ranks) return false;
    const auto job = jobs_.find(policy.run_id);
    if (job != jobs_.end() && job->second->membership.has_formed()) return false;
    const auto other = std::find_if(incompatible_agents_.begin(), incompatible_agents_.end(),
                                    [&](const auto& entry) { return entry.second.run_id == policy.run_id; });
    if (other == incompatible_agents_.end()) return false;
    const IncompatibleAgent agent = other->second;
    refuse(id, conflict_text(agent));
    if (agent.ddprun) notify_static_agents(agent.run_id, refusal_text(agent));
    return true;
  }

  // ---- requests for status and stop

  std::vector<JobPtr> jobs_named(const std::string& run_id) const {
    std::vector<JobPtr> found;
    for (const auto& [id, job] : jobs_)
      if (run_id.empty() || id == run_id) found.push_back(job);
    return found;
  }

  std::string names() const {
    std::string text;
    for (const auto& [id, job] : jobs_)
      if (text.size() < 1000) text += (text.empty() ? "" : ", ") + id;
    return text;
  }

  void answer(SessionId id, const std::vector<JobPtr>& jobs) {
    std::vector<JobStatus> statuses;
    for (const auto& job : jobs) statuses.push_back(job->membership.status(now()));
    std::string text = to_json(statuses);
    if (text.size() > SessionLimits::answer) {  // many jobs or very large nodes: leave the nodes out
      for (auto& status : statuses) status.nodes.clear();
      text = to_json(statuses);
    }
    if (text.size() > SessionLimits::answer) return refuse(id, "there are too many jobs for one answer; name a job");
    sender_.send(id, encode(ServerFrame{RequestAnswer{std::move(text)}}));
    sender_.close(id);
  }

  void refuse(SessionId id, const std::string& why) {
    sender_.send(id, encode(ServerFrame{JoinRefused{why}}));
    sender_.close(id);
  }

  void handle_request(SessionId id, const StatusRequest& request) { answer(id, jobs_named(request.run_id)); }

  void handle_request(SessionId id, const StopRequest& request) {
    if (const JobPtr own = sessions_.at(id).job) return stop_own(own, request.who);
    const auto jobs = jobs_named(request.run_id);
    if (jobs.size() > 1) return refuse(id, fmt::format("there are several jobs; name one of them: {}", names()));
    if (!jobs.empty() && (deposed(jobs.front()) || jobs.front()->gathering || !supported(jobs.front())))
      return refuse(id, "the rendezvous server of this job does not decide at present; ask again, or on another node");
    answer(id, jobs);
    if (jobs.empty()) return;
    deliver(jobs.front(), jobs.front()->membership.stop(now(), request.who));
  }

  // A node of the job asks in its session, which a refusal would end.
  void stop_own(const JobPtr& job, const std::string& who) {
    if (deposed(job)) return;
    decide(job, [this, job, who] { deliver(job, job->membership.stop(now(), who)); });
  }

  static bool is_current_session(SessionId id, const Session& session) {
    const auto current = session.job->sessions.find(session.node);
    return current != session.job->sessions.end() && current->second == id;
  }

  void handle_join(SessionId id, const SessionJoin& join) {
    Session& session = sessions_.at(id);
    if (session.job) throw make_error(Errc::protocol, "a second JOIN in one session");
    if (moved(id, join.policy.run_id)) return;
    const bool known = jobs_.contains(join.policy.run_id);
    if (!known && (refusing_jobs_ || deposed_.contains(join.policy.run_id))) return sender_.close(id);
    if (refuse_conflict(id, join.policy)) return;
    const JobPtr job = job_for(join.policy);
    if (deposed(job)) return sender_.close(id);
    if (join.node.serves && !job->lease) begin_lease(job, join.node.id);
    session.job = job;
    session.node = join.node.id;
    const SessionAddresses addresses{session.peer.peer_address, session.peer.local_address};
    const auto before = job->sessions.find(join.node.id);
    const std::optional<SessionId> superseded =
        before == job->sessions.end() ? std::nullopt : std::optional(before->second);
    job->sessions[join.node.id] = id;
    if (job->lease) announce_server(job, id);
    if (job->gathering) {
      if (superseded) sender_.close(*superseded);
      job->held[join.node.id] = join;
      return;
    }
    decide(job, [this, id, job, join, addresses, superseded] {
      auto messages = job->membership.join(now(), join.node, join.policy, addresses);
      if (superseded && restore_or_close(job, {id, *superseded}, join.node.id, messages))
        node_left(job, join.node.id, "opened a new session");
      deliver(job, std::move(messages));
    });
  }

  // A node's new session replaces its old one, unless the new one was refused: then the old one stays. Returns whether
  // it was replaced. Both may have closed before the server decided.
  struct NodeSessions {
    SessionId joining, superseded;
  };
  bool restore_or_close(const JobPtr& job, NodeSessions both, const std::string& node, MembershipMessages& messages) {
    const bool refused = !messages.empty() && std::holds_alternative<JoinRefused>(messages.front().what);
    if (!refused) {
      if (sessions_.contains(both.superseded)) sender_.close(both.superseded);
      return true;
    }
    if (sessions_.contains(both.superseded))
      job->sessions[node] = both.superseded;
    else
      job->sessions.erase(node);
    if (sessions_.contains(both.joining)) {
      sender_.send(both.joining, encode(ServerFrame{std::get<JoinRefused>(std::move(messages.front().what))}));
      sender_.close(both.joining);
    }
    messages.erase(messages.begin());
    return false;
  }

  JobPtr job_for(const JobPolicy& policy) {
    if (const auto found = jobs_.find(policy.run_id); found != jobs_.end()) return found->second;
    if (jobs_.size() >= options_.max_jobs)
      throw make_error(Errc::protocol, "this server has {} jobs, which is its limit", jobs_.size());
    JobPtr job = std::make_shared<Job>(loop_, policy, options_.membership);
    jobs_[policy.run_id] = job;
    arm(job);
    return job;
  }

  // ---- the election of servers

  void begin_lease(const JobPtr& job, const std::string& own_node) {
    const auto& policy = job->membership.policy();
    job->lease.emplace(own_node, lease_bounds(policy), first_sets_[policy.run_id]);
    for (const auto& [node, session] : job->sessions) announce_server(job, session);
  }

  void announce_server(const JobPtr& job, SessionId session) {
    sender_.send(session, encode(ServerFrame{SessionServer{.name = job->lease->server(),
                                                           .decides = job->lease->may_decide(now()),
                                                           .sent_us = to_us(now())}}));
  }

  void handle(SessionId, const Session& session, SessionSeen& frame) {
    const JobPtr job = session.job;
    if (!job->lease) return;
    job->lease->acknowledged(now(), session.node, std::min(now(), from_us(frame.sent_us)), frame.known);
    announce_confirmed(job);
    if (job->gathering && job->lease->may_decide(now())) gather(job);
    if (!job->gathering) release_held(job);
  }

  // ---- the right to decide

  static bool supported(const JobPtr& job) { return !job->lease || job->lease->may_decide(now()); }

  // Executes the event once the server has the support of the nodes, after those that wait for it.
  void decide(const JobPtr& job, std::function<void()> event) {
    if (!job->gathering && job->held_events.empty() && supported(job)) return event();
    job->held_events.push_back(std::move(event));
    ask_support(job);
  }

  void release_held(const JobPtr& job) {
    while (!job->held_events.empty() && supported(job)) {
      const auto event = std::move(job->held_events.front());
      job->held_events.pop_front();
      event();
    }
    const auto found = jobs_.find(job->membership.policy().run_id);
    if (found == jobs_.end() || found->second != job) job->held_events.clear();  // they own the job
  }

  // The nodes acknowledge at once what the server says of itself.
  void ask_support(const JobPtr& job) {
    if (now() >= job->support_asked + support_pause) {
      job->support_asked = now();
      for (const auto& [node, session] : job->sessions) announce_server(job, session);
    }
    arm(job);
  }

  // The others need no message of it where the job has ended: then all nodes close their sessions.
  void end_session_of(const JobPtr& job, const std::string& node) {
    if (!job->membership.ended()) node_left(job, node, "was lost: its connection closed");
    deliver(job, job->membership.session_closed(now(), node, "its connection closed"));
  }

  // Returns whether a frame may change what the membership decides.
  template <class Frame>
  static constexpr bool needs_decision(const Frame&) {
    constexpr bool of_the_session = std::is_same_v<Frame, SessionBeat> || std::is_same_v<Frame, SessionSeen>;
    return !of_the_session && !std::is_same_v<Frame, SessionNode> && !std::constructible_from<RelayMessage, Frame>;
  }

  void announce_confirmed(const JobPtr& job) {
    const auto confirmed = job->lease->take_confirmed();
    if (!confirmed) return;
    const auto frame = encode(ServerFrame{ElectorateConfirmed{*confirmed}});
    for (const auto& [node, session] : job->sessions) sender_.send(session, frame);
  }

  // Every set of nodes on which the server decides passes through here.
  void adopt(const JobPtr& job, Round& round) {
    if (!job->lease) return;
    std::vector<std::string> nodes;
    for (const auto& member : round.members)
      if (member.port != 0) nodes.push_back(member.node_id);
    round.confirmed = job->lease->electorate().confirmed();
    round.electorate = job->lease->adopt(now(), std::move(nodes));
    if (round.electorate.term == 0) first_sets_[job->membership.policy().run_id] = round.electorate.number;
  }

  void adopt(const JobPtr& job, RoundResumed& resumed) {
    const auto* running = job->membership.running_round();
    if (!job->lease || !running) return;
    Round round = *running;
    adopt(job, round);
    resumed.electorate = job->lease->electorate().newest();
    resumed.confirmed = round.confirmed;
  }

  void gather_or_wait(const JobPtr& job) { job->lease->may_decide(now()) ? gather(job) : arm(job); }

  // A majority has come. The other nodes may be on their way.
  void gather(const JobPtr& job) {
    const auto expected = job->lease->electorate().newest().nodes;
    const bool all = std::ranges::all_of(
        expected, [&](const auto& node) { return job->held.contains(node) || job->lease->has_ended(node); });
    if (all || (job->gathered && now() >= *job->gathered)) return begin_elected(job);
    if (!job->gathered) job->gathered = now() + options_.gather;
    arm(job);
  }

  void begin_elected(const JobPtr& job) {
    job->gathering = false;
    job->membership.await_nodes();
    const auto held = std::exchange(job->held, {});
    std::string missing;
    for (const auto& node : job->lease->electorate().newest().nodes)
      if (!held.contains(node)) missing += (missing.empty() ? "" : ", ") + node;
    for (const auto& [node, join] : held) {
      const auto session = job->sessions.find(node);
      if (session == job->sessions.end()) continue;
      const auto& peer = sessions_.at(session->second).peer;
      deliver(job, job->membership.join(now(), join.node, join.policy, {peer.peer_address, peer.local_address}));
    }
    deliver(job, job->membership.continue_round(
                     now(), fmt::format("the node with the rendezvous server was lost, and this one was elected{}",
                                        missing.empty() ? "" : fmt::format(" (missing: {})", missing))));
  }

  // Returns whether the server may not decide for the job any more; then its sessions end.
  bool deposed(const JobPtr& job) {
    if (!job->lease || !job->lease->is_over(now())) return false;
    const auto run_id = job->membership.policy().run_id;
    const auto found = jobs_.find(run_id);
    if (found == jobs_.end() || found->second != job) return true;
    log::warn(
        "the rendezvous server of run id '{}' in this process has lost contact with half of its nodes or more, "
        "which may have elected another: it stops deciding",
        run_id);
    deposed_.insert(run_id);
    end_sessions(job, ServerFrame{NodeDropped{.text = "the rendezvous server has lost contact with half of the nodes "
                                                      "or more",
                                              .may_return = true}});
    if (succession_.deposed) succession_.deposed(run_id);
    return true;
  }

  void end_sessions(const JobPtr& job, const ServerFrame& why) {
    const auto frame = encode(why);
    jobs_.erase(job->membership.policy().run_id);
    job->timer.cancel();
    job->held_events.clear();
    for (const auto& [node, session] : std::exchange(job->sessions, {})) {
      sender_.send(session, frame);
      sender_.close(session);
    }
  }

  // A server that was elected for the job is elsewhere: nodes that come here are sent there.
  void handle_elected(SessionId id, const ServerElected& elected) {
    const auto found = jobs_.find(elected.run_id);
    const bool later =
        found == jobs_.end() || !found->second->lease || found->second->lease->server().term < elected.server.term;
    if (later && elected.decides) {
      const HostPort address{.host = without_v4_mapping(sessions_.at(id).peer.peer_address), .port = elected.port};
      moved_[elected.run_id] = {address, now() + announcement_lasts};
      if (found != jobs_.end()) {
        const JobPtr job = found->second;
        log::warn("another server of run id '{}' has been elected, at {}: the one in this process stops deciding",
                  elected.run_id, format_host_port(address.host, elected.port));
        end_sessions(job, ServerFrame{ServerMoved{address}});
        if (succession_.deposed) succession_.deposed(elected.run_id);
      }
    }
    sender_.send(id, encode(ServerFrame{ServerBeat{}}));
    sender_.close(id);
  }

  bool moved(SessionId id, const std::string& run_id) {
    const auto found = moved_.find(run_id);
    if (found == moved_.end()) return false;
    if (now() >= found->second.until) {
      moved_.erase(found);
      return false;
    }
    sender_.send(id, encode(ServerFrame{ServerMoved{found->second.address}}));
    sender_.close(id);
    return true;
  }

  void handle(SessionId, const Session&, SessionJoin&) {}
  void handle(SessionId, const Session&, VoteAsked&) {}
  void handle(SessionId, const Session&, ServerElected&) {}
  void handle(SessionId, const Session&, StatusRequest&) {}
  void handle(SessionId, const Session&, StopRequest&) {}
  void handle(SessionId id, const Session& session, SessionBeat&) {
    const JobPtr job = session.job;
    sender_.send(id, encode(ServerFrame{ServerBeat{to_us(now())}}));
    deliver(job, job->membership.beat(now(), session.node));
  }
  void handle(SessionId, const Session& session, SessionReady& frame) {
    const JobPtr job = session.job;
    deliver(job, job->membership.ready(now(), session.node, frame.generation, frame.worker_store_port));
  }
  void handle(SessionId, const Session& session, SessionSuccess& frame) {
    const JobPtr job = session.job;
    deliver(job, job->membership.success(now(), session.node, frame.generation));
  }
  void handle(SessionId, const Session& session, SessionPreempted& frame) {
    const JobPtr job = session.job;
    deliver(job, job->membership.preempted(now(), session.node, frame.generation));
  }
  void handle(SessionId, const Session& session, SessionNode& frame) {
    const JobPtr job = session.job;
    deliver(job, job->membership.report(now(), session.node, frame.generation, frame.report));
  }
  void handle(SessionId, const Session& session, SessionFailure& frame) {
    const JobPtr job = session.job;
    const std::int64_t here = wall_clock_us();
    for (auto& failure : frame.failures) {
      const std::int64_t age = std::max<std::int64_t>(0, frame.sent_us - failure.time_us);
      failure.time_us = std::max<std::int64_t>(0, here - age);
    }
    deliver(job, job->membership.failure(now(), session.node, frame.generation, frame.failures, frame.survivors));
  }
  void handle(SessionId, const Session& session, SessionRecovery& frame) {
    const JobPtr job = session.job;
    deliver(job, job->membership.recovery_answered(now(), session.node, frame.generation, frame.refusal));
  }
  void handle(SessionId, const Session& session, WorkersRecoverable& frame) {
    const JobPtr job = session.job;
    deliver(job, job->membership.recoverable(now(), session.node, frame.generation, frame.able));
  }
  void handle(SessionId id, const Session& session, SessionLeave& frame) {
    const JobPtr job = session.job;
    const std::string node = session.node;
    if (is_current_session(id, session)) job->sessions.erase(node);  // the node may have opened another one since
    job->held.erase(node);
    sender_.close(id);
    if (job->lease) job->lease->ended(now(), node);
    node_left(job, node, "left: " + frame.reason);
    deliver(job, job->membership.leave(now(), node, frame.reason));
  }

  void handle(SessionId id, const Session& session, LeaveRequest& frame) {
    if (!is_current_session(id, session)) return;  // the node has opened another one since
    const JobPtr job = session.job;
    const std::string node = session.node;
    auto messages = job->membership.leave_asked(now(), node, frame.reason);
    if (!job->membership.has(node)) node_left(job, node, "left: " + frame.reason);
    deliver(job, std::move(messages));
  }

  template <class Message>
  requires std::constructible_from<RelayMessage, Message>
  void handle(SessionId, const Session& session, Message& message) {
    const JobPtr job = session.job;
    relay(job, job->relay.received(session.node, std::move(message), job->membership.running_round()));
  }

  // ---- messages among the agents

  void relay(const JobPtr& job, RelayTable::Deliveries deliveries) {
    for (auto& delivery : deliveries) {
      const auto session = job->sessions.find(delivery.node);
      if (session == job->sessions.end()) continue;
      std::visit([&](auto& one) { sender_.send(session->second, encode(ServerFrame(std::move(one)))); },
                 delivery.message);
    }
  }

  void node_left(const JobPtr& job, const std::string& node, const std::string& how) {
    relay(job, job->relay.node_left(node, how));
  }

  // ---- messages of the membership

  void deliver(const JobPtr& job, MembershipMessages messages) {
    for (auto& message : messages)
      std::visit([&](auto& what) { post(job, message.to, std::move(what)); }, message.what);
    if (job->lease) announce_confirmed(job);
    if (job->gathering) return;
    if (job->membership.ended() || job->membership.empty())
      retire(job);
    else
      arm(job);
  }

  template <class What>
  void post(const JobPtr& job, const std::vector<std::string>& to, What what) {
    constexpr bool ends_session = std::is_same_v<What, JoinRefused> || std::is_same_v<What, NodeDropped>;
    if constexpr (std::is_same_v<What, RoundStarted>)
      if (round_start_) round_start_(job->membership.policy().run_id, what.round.generation);
    constexpr bool per_receiver = std::is_same_v<What, RoundProposed> || std::is_same_v<What, RoundChanged>;
    if constexpr (per_receiver) adopt(job, what.round);
    if constexpr (std::is_same_v<What, RoundResumed>) adopt(job, what);
    std::string bytes = encode(to_frame(std::move(what)));
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto session = job->sessions.find(to[i]);
      if (session == job->sessions.end()) continue;
      if constexpr (per_receiver) set_round_self(bytes, static_cast<int>(i));
      const SessionId id = session->second;
      sender_.send(id, bytes);
      if constexpr (ends_session) {
        job->sessions.erase(session);
        sender_.close(id);
        node_left(job, to[i], "was lost");
      }
    }
    constexpr bool moves_ranks = std::is_same_v<What, RoundStarted> || std::is_same_v<What, RoundChanged>;
    if constexpr (moves_ranks || std::is_same_v<What, RoundResumed>)
      if (const auto* round = job->membership.running_round()) relay(job, job->relay.round_started(*round));
  }

  void arm(const JobPtr& job) {
    const auto due = due_of(job);
    if (job->armed && job->timer.expiry() == due) return;
    job->armed = true;
    job->timer.expires_at(due);
    job->timer.async_wait(
        [weak_self = weak_from_this(), weak_job = std::weak_ptr(job)](boost::system::error_code error) {
          const auto self = weak_self.lock();
          const auto ticking = weak_job.lock();
          if (error || !self || !ticking) return;
          ticking->armed = false;
          if (self->deposed(ticking)) return;
          if (ticking->gathering) return self->gather_or_wait(ticking);
          if (!supported(ticking)) return self->ask_support(ticking);
          self->release_held(ticking);
          self->deliver(ticking, ticking->membership.tick(now()));
        });
  }

  Membership::Time due_of(const JobPtr& job) const {
    if (job->gathering) return job->gathered.value_or(now() + lease_bounds(job->membership.policy()).patience);
    return supported(job) ? job->membership.next_tick() : job->support_asked + support_pause;
  }

  // The job has ended or has no nodes left: frees its run id.
  void retire(const JobPtr& job) {
    const auto found = jobs_.find(job->membership.policy().run_id);
    if (found == jobs_.end() || found->second != job) return;
    jobs_.erase(found);
    job->timer.expires_after(options_.result_grace);
    job->timer.async_wait(
        [weak_self = weak_from_this(), weak_job = std::weak_ptr(job)](boost::system::error_code error) {
          const auto self = weak_self.lock();
          const auto ended = weak_job.lock();
          if (error || !self || !ended) return;
          for (const auto& [node, session] : ended->sessions) self->sender_.close(session);
        });
  }

  asio::io_context& loop_;
  SessionSender& sender_;
  const MembershipHubOptions options_;
  std::map<std::string, JobPtr> jobs_;  // by run id; jobs that have not ended
  std::map<SessionId, Session> sessions_;
  std::map<SessionId, IncompatibleAgent> incompatible_agents_;  // by connection
  std::set<SessionId> refused_agents_;  // those of incompatible_agents_ notified by static_refusal_key
  struct Moved {
    HostPort address;
    Membership::Time until{};
  };
  std::map<std::string, Moved> moved_;  // by run id
  std::set<std::string> deposed_;       // the run ids of jobs for which this server may not decide any more
  std::map<std::string, std::uint64_t> first_sets_;  // the number of the last set of a first server here, by run id
  SuccessionListener succession_;
  RoundStartListener round_start_;
  std::function<void()> session_end_;
  bool refusing_jobs_ = false;
};

MembershipHub::MembershipHub(asio::io_context& loop, SessionSender& sender, MembershipHubOptions options)
    : impl_(std::make_shared<Impl>(loop, sender, options)) {}
MembershipHub::~MembershipHub() {
  impl_->stop();
}

void MembershipHub::on_open(SessionId session, const SessionPeer& peer) {
  impl_->open(session, peer);
}
void MembershipHub::on_frame(SessionId session, std::string frame) {
  impl_->frame(session, frame);
}
void MembershipHub::on_close(SessionId session) {
  impl_->close(session);
}
void MembershipHub::on_key(SessionId connection, const std::string& peer_address, std::string_view key,
                           std::string_view value) {
  impl_->key(connection, peer_address, key, value);
}
std::string MembershipHub::refusal_of(std::string_view frame_head) {
  const auto version = announced_version(frame_head);
  if (!version) return {};
  return encode(ServerFrame{JoinRefused{fmt::format(
      "this rendezvous server admits only who knows the job's token or is the job's user on one of its hosts, and a "
      "ddprun with version {} of the session protocol sent no token (this ddprun has version {} and can send one): run "
      "the same ddprun on all nodes, with the same --rdzv_conf=token_file",
      *version, session_protocol_version)}});
}
void MembershipHub::refuse_new_jobs() {
  impl_->refuse_new_jobs();
}
std::vector<std::string> MembershipHub::run_ids() const {
  return impl_->run_ids();
}
void MembershipHub::announce_shutdown(const std::string& reason) {
  impl_->announce_shutdown(reason);
}
std::size_t MembershipHub::sessions() const {
  return impl_->sessions();
}
std::size_t MembershipHub::jobs() const {
  return impl_->jobs();
}
void MembershipHub::on_round_start(RoundStartListener listener) {
  impl_->on_round_start(std::move(listener));
}
void MembershipHub::serve_elected(const JobPolicy& policy, const ServerName& self, const Electorate& electorate) {
  impl_->serve_elected(policy, self, electorate);
}
bool MembershipHub::decides(const std::string& run_id) const {
  return impl_->decides(run_id);
}
bool MembershipHub::serves(const std::string& run_id) const {
  return impl_->serves(run_id);
}
bool MembershipHub::has_session(const std::string& run_id, const std::string& node) const {
  return impl_->has_session(run_id, node);
}
void MembershipHub::node_ended(const std::string& run_id, const std::string& node) {
  impl_->node_ended(run_id, node);
}
void MembershipHub::on_succession(SuccessionListener listener) {
  impl_->on_succession(std::move(listener));
}
void MembershipHub::on_session_end(std::function<void()> listener) {
  impl_->on_session_end(std::move(listener));
}

}  // namespace ddprun
