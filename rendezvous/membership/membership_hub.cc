#include "rendezvous/membership/membership_hub.h"

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "rendezvous/membership/incompatible_agents.h"
#include "rendezvous/membership/moved_servers.h"
#include "rendezvous/membership/session_protocol.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

using Clock = std::chrono::steady_clock;
using JobPtr = std::shared_ptr<ServedJob>;
using RoundStartListener = std::function<void(const std::string& run_id, std::int64_t generation)>;

struct NodeSession {
  SessionPeer peer;
  JobPtr job;  // none before JOIN
  std::string node;
};

}  // namespace

class MembershipHub::Impl final : public JobOwner, public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, SessionSender& sender, MembershipHubOptions options)
      : loop_(loop), sender_(sender), options_(options), incompatible_(sender) {}

  void open(SessionId id, const SessionPeer& peer) { sessions_[id].peer = peer; }

  void frame(SessionId id, const std::string& bytes) {
    NodeFrame frame;
    try {
      frame = decode_node_frame(bytes);
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
      // Another version of the protocol: refuse it by name, since a closed connection would make the agent redial.
      return refuse(id, error.what());
    }
    if (auto* join = std::get_if<SessionJoin>(&frame)) return handle_join(id, *join);
    if (auto* request = std::get_if<StatusRequest>(&frame)) return answer(id, jobs_named(request->run_id));
    if (auto* request = std::get_if<StopRequest>(&frame)) return handle_stop(id, *request);
    if (auto* elected = std::get_if<ServerElected>(&frame)) return handle_elected(id, *elected);
    if (std::holds_alternative<VoteAsked>(frame)) return sender_.close(id);
    const NodeSession session = sessions_.at(id);
    if (!session.job) throw make_error(Errc::protocol, "a session has to begin with JOIN");
    session.job->receive(id, session.node, std::move(frame));
  }

  void key(SessionId id, const std::string& peer_address, std::string_view key, std::string_view value) {
    auto agent = parse_incompatible_agent(key, value);
    if (!agent) return;
    agent->address = peer_address;
    incompatible_.add(id, *agent);
    const JobPtr job = find(agent->run_id);
    if (!job) return incompatible_.refuse_mixed_kinds(*agent);
    if (job->deposed()) return;
    const bool fixed_ranks = job->policy().fixed_ranks;
    if (fixed_ranks && agent->kind == IncompatibleAgent::Kind::static_) return;
    if (!fixed_ranks) job->conflict(conflict_text(*agent));
    incompatible_.refuse(*agent);
  }

  void close(SessionId id) {
    if (incompatible_.closed(id) && session_end_) session_end_();
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    const NodeSession session = std::move(found->second);
    sessions_.erase(found);
    if (session.job) session.job->session_closed(id, session.node);
    if (session_end_) session_end_();
  }

  // No callback runs after this.
  void stop() {
    round_start_ = nullptr;
    session_end_ = nullptr;
    succession_ = {};
    for (auto& [run_id, job] : jobs_) job->cancel();
    jobs_.clear();
    sessions_.clear();
    incompatible_.clear();
  }

  std::size_t sessions() const { return sessions_.size() + incompatible_.refused(); }
  std::size_t jobs() const { return jobs_.size(); }
  void refuse_new_jobs() { refusing_jobs_ = true; }
  std::vector<std::string> run_ids() const {
    std::vector<std::string> ids;
    for (const auto& [id, job] : jobs_) ids.push_back(id);
    return ids;
  }

  void announce_shutdown(const std::string& reason) {
    refusing_jobs_ = true;
    const auto jobs = jobs_;
    for (const auto& [run_id, job] : jobs) {
      if (job->deposed()) continue;
      job->server_leaves("the rendezvous server shuts down: " + reason);
      if (!job->ended()) end_job(job, ServerFrame{SessionShutdown{reason}});
    }
  }

  void serve_elected(const JobPolicy& policy, const ServerName& self, const Electorate& electorate) {
    if (const JobPtr before = find(policy.run_id)) before->replaced();
    make_job(policy)->begin_elected(self, electorate);
  }

  bool decides(const std::string& run_id) const {
    const JobPtr job = find(run_id);
    return job && job->lease() && job->lease()->may_decide(Clock::now());
  }

  bool serves(const std::string& run_id) const {
    const JobPtr job = find(run_id);
    return job && job->lease() && !job->lease()->is_over(Clock::now());
  }

  bool has_session(const std::string& run_id, const std::string& node) const {
    const JobPtr job = find(run_id);
    return job && job->has_session(node);
  }

  void node_ended(const std::string& run_id, const std::string& node) {
    if (const JobPtr job = find(run_id)) job->node_ended(node);
  }

  void node_lives(const std::string& run_id, const std::string& node) {
    if (const JobPtr job = find(run_id)) job->node_lives(node);
  }

  void on_succession(SuccessionListener listener) { succession_ = std::move(listener); }
  void on_round_start(RoundStartListener listener) { round_start_ = std::move(listener); }
  void on_session_end(std::function<void()> listener) { session_end_ = std::move(listener); }

 private:
  // ---- jobs

  JobPtr find(const std::string& run_id) const {
    const auto found = jobs_.find(run_id);
    return found == jobs_.end() ? nullptr : found->second;
  }

  JobPtr make_job(const JobPolicy& policy) {
    auto job = std::make_shared<ServedJob>(loop_, sender_, weak_from_this(), policy, options_.job);
    jobs_[policy.run_id] = job;
    return job;
  }

  JobPtr job_for(const JobPolicy& policy) {
    if (JobPtr job = find(policy.run_id)) return job;
    if (jobs_.size() >= options_.max_jobs)
      throw make_error(Errc::protocol, "this server has {} jobs, which is its limit", jobs_.size());
    JobPtr job = make_job(policy);
    job->begin();
    return job;
  }

  void forget(const JobPtr& job) {
    const auto& run_id = job->policy().run_id;
    if (const auto number = job->last_first_set(); number != 0) first_sets_[run_id] = number;
    jobs_.erase(run_id);
  }

  void end_job(const JobPtr& job, const ServerFrame& why) {
    forget(job);
    job->end_sessions(why);
  }

  bool is_open(SessionId session) const override { return sessions_.contains(session); }
  void round_starts(const std::string& run_id, std::int64_t generation) override {
    if (round_start_) round_start_(run_id, generation);
  }
  void node_lost(const std::string& run_id, const std::string& node) override {
    if (succession_.node_lost) succession_.node_lost(run_id, node);
  }
  void ended(const std::string& run_id) override {
    if (const JobPtr job = find(run_id)) forget(job);
  }

  void deposed(const std::string& run_id) override {
    const JobPtr job = find(run_id);
    if (!job) return;
    log::warn(
        "the rendezvous server of run id '{}' in this process has lost contact with half of its nodes or more, "
        "which may have elected another: it stops deciding",
        run_id);
    deposed_.insert(run_id);
    end_job(job, ServerFrame{NodeDropped{.text = "the rendezvous server has lost contact with half of the nodes "
                                                 "or more",
                                         .may_return = true}});
    if (succession_.deposed) succession_.deposed(run_id);
  }

  // ---- clients that ask for status or a stop

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
    for (const auto& job : jobs) statuses.push_back(job->status());
    auto text = to_json_within(std::move(statuses), SessionLimits::answer);
    if (!text) return refuse(id, "there are too many jobs for one answer; name a job");
    sender_.send(id, encode(ServerFrame{RequestAnswer{std::move(*text)}}));
    sender_.close(id);
  }

  void refuse(SessionId id, const std::string& why) {
    sender_.send(id, encode(ServerFrame{JoinRefused{why}}));
    sender_.close(id);
  }

  void handle_stop(SessionId id, const StopRequest& request) {
    // A node of the job asks in its session, which a refusal would end.
    if (const JobPtr own = sessions_.at(id).job) return own->stop(request.who);
    const auto jobs = jobs_named(request.run_id);
    if (jobs.size() > 1) return refuse(id, fmt::format("there are several jobs; name one of them: {}", names()));
    if (!jobs.empty() && !jobs.front()->acts())
      return refuse(id, "the rendezvous server of this job does not decide at present; ask again, or on another node");
    answer(id, jobs);
    if (!jobs.empty()) jobs.front()->stop(request.who);
  }

  // ---- nodes that join

  void handle_join(SessionId id, const SessionJoin& join) {
    const auto& run_id = join.policy.run_id;
    NodeSession& session = sessions_.at(id);
    if (session.job) throw make_error(Errc::protocol, "a second JOIN in one session");
    if (const auto address = moved_.address(Clock::now(), run_id)) return send_away(id, *address);
    if (!find(run_id) && (refusing_jobs_ || deposed_.contains(run_id))) return sender_.close(id);
    if (const auto why = conflict(join.policy)) return refuse(id, *why);
    const JobPtr job = job_for(join.policy);
    if (job->deposed()) return sender_.close(id);
    if (join.node.serves) job->begin_lease(join.node.id, first_sets_[run_id]);
    session.job = job;
    session.node = join.node.id;
    job->join(id, join, {session.peer.peer_address, session.peer.local_address});
  }

  // Returns why the node is refused: other agents use its run id with another rendezvous. A job that has formed is not
  // affected.
  std::optional<std::string> conflict(const JobPolicy& policy) {
    const JobPtr job = find(policy.run_id);
    if (policy.fixed_ranks || (job && job->has_formed())) return std::nullopt;
    return incompatible_.refuse_for_job(policy.run_id);
  }

  // ---- servers that were elected elsewhere

  // A server that was elected for the job is elsewhere: nodes that come here are sent there.
  void handle_elected(SessionId id, const ServerElected& elected) {
    const JobPtr job = find(elected.run_id);
    const bool later = !job || !job->lease() || job->lease()->server().term < elected.server.term;
    if (later && elected.decides) {
      const HostPort address{.host = without_v4_mapping(sessions_.at(id).peer.peer_address), .port = elected.port};
      moved_.announced(Clock::now(), elected.run_id, address);
      if (job) {
        log::warn("another server of run id '{}' has been elected, at {}: the one in this process stops deciding",
                  elected.run_id, format_host_port(address.host, elected.port));
        end_job(job, ServerFrame{ServerMoved{address}});
        if (succession_.deposed) succession_.deposed(elected.run_id);
      }
    }
    sender_.send(id, encode(ServerFrame{ServerBeat{}}));
    sender_.close(id);
  }

  void send_away(SessionId id, const HostPort& address) {
    sender_.send(id, encode(ServerFrame{ServerMoved{address}}));
    sender_.close(id);
  }

  asio::io_context& loop_;
  SessionSender& sender_;
  const MembershipHubOptions options_;
  std::map<std::string, JobPtr> jobs_;  // by run id; jobs that have not ended
  std::map<SessionId, NodeSession> sessions_;
  IncompatibleAgents incompatible_;
  MovedServers moved_;
  std::set<std::string> deposed_;  // the run ids of jobs for which this server may not decide any more
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
void MembershipHub::node_lives(const std::string& run_id, const std::string& node) {
  impl_->node_lives(run_id, node);
}
void MembershipHub::on_succession(SuccessionListener listener) {
  impl_->on_succession(std::move(listener));
}
void MembershipHub::on_session_end(std::function<void()> listener) {
  impl_->on_session_end(std::move(listener));
}

}  // namespace ddprun
