#include "tests/simulation/server.h"

#include <optional>
#include <utility>

#include "rendezvous/membership/session_protocol.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr Duration result_grace = 60s;
const std::string who = "server";

ServerFrame to_frame(const RoundStarted& what) {
  return SessionStarted{.generation = what.round.generation,
                        .master_addr = what.round.master_addr,
                        .master_port = what.round.master_port};
}
template <class What>
ServerFrame to_frame(const What& what) {
  return what;
}

const char* name_of(const MembershipMessage::What& what) {
  static constexpr const char* names[] = {"REFUSED",   "DROPPED", "WAITING",     "PROPOSED", "STARTED",
                                          "CHANGED",   "STANDBY", "CAN_RECOVER", "REPLACED", "NOT_REPLACED",
                                          "MAY_LEAVE", "ENDED",   "RECOVERABLE", "RESUMED"};
  static_assert(std::size(names) == std::variant_size_v<MembershipMessage::What>);
  return names[what.index()];
}

}  // namespace

struct Server::Job {
  Job(const JobPolicy& policy, int its_number) : membership(policy), number(its_number) {}

  Membership membership;
  const int number;  // its number in the invariant checker
  std::map<std::string, SessionId> sessions;
  std::optional<Time> armed_for;
};

void Server::accept(const ConnectionPtr& connection) {
  const SessionId id = next_id_++;
  sessions_[id].connection = connection;
  const std::weak_ptr<Server> weak = weak_from_this();
  connection->set_handlers(Connection::server, {.packet =
                                                    [weak, id](const Packet& packet) {
                                                      if (const auto self = weak.lock())
                                                        self->handle_packet(id, packet);
                                                    },
                                                .closed =
                                                    [weak, id] {
                                                      if (const auto self = weak.lock()) self->closed(id);
                                                    }});
}

void Server::drain(std::function<void()> done) {
  refusing_sessions_ = true;
  on_drained_ = std::move(done);
  if (sessions_.empty()) process_->after(0s, on_drained_);
}

void Server::announce_shutdown(const std::string& reason) {
  refusing_sessions_ = true;
  const JobPtr job = job_;
  if (!job) return;
  deliver(job, job->membership.server_leaves(simulation_.time.now(), reason));
  if (job->membership.ended()) return;
  job_.reset();
  const auto notice = std::make_shared<const ServerFrame>(SessionShutdown{reason});
  for (const auto& [node, id] : std::exchange(job->sessions, {})) {
    send(id, notice, 0);
    end_session(id);
  }
}

void Server::handle_packet(SessionId id, const Packet& packet) {
  const NodeFrame frame = decode_node_frame(packet.bytes);
  const NodeSession& session = sessions_.at(id);
  if (const auto* join = std::get_if<SessionJoin>(&frame)) return handle_join(id, *join, packet.index);
  if (!session.job || !is_current_session(id, session)) return;
  std::visit([&](const auto& one) { handle(id, one); }, frame);
}

bool Server::is_current_session(SessionId id, const NodeSession& session) {
  const auto current = session.job->sessions.find(session.node);
  return current != session.job->sessions.end() && current->second == id;
}

void Server::closed(SessionId id) {
  const NodeSession session = std::move(sessions_.at(id));
  sessions_.erase(id);
  if (session.job && is_current_session(id, session)) {
    session.job->sessions.erase(session.node);
    simulation_.note(who, "sees {} close", session.node);
    simulation_.checker.node_left(session.job->number, session.node);
    deliver(session.job, session.job->membership.session_closed(simulation_.time.now(), session.node, "closed"));
  }
  if (on_drained_ && sessions_.empty()) on_drained_();
}

void Server::end_session(SessionId id) {
  sessions_.at(id).connection->close(Connection::server);
  // It is posted, as the hub's on_close is.
  process_->after(0s, [self = shared_from_this(), id] { self->closed(id); });
}

// ---- frames

// A node's later session replaces its earlier one, unless it is refused.
void Server::handle_join(SessionId id, const SessionJoin& frame, int attempt) {
  if (refusing_sessions_) return end_session(id);
  NodeSession& session = sessions_.at(id);
  const JobPtr job = job_for(frame.policy);
  session.job = job;
  session.node = frame.node.id;
  session.attempt = attempt;
  simulation_.note(who, "receives JOIN of {}", frame.node.id);
  const auto before = job->sessions.find(frame.node.id);
  const auto superseded = before == job->sessions.end() ? std::nullopt : std::optional(before->second);
  const SessionAddresses addresses{session.connection->host(Connection::client).name,
                                   session.connection->host(Connection::server).name};
  job->sessions[frame.node.id] = id;
  simulation_.checker.node_joined(job->number, frame.node.id);
  auto messages = job->membership.join(simulation_.time.now(), frame.node, frame.policy, addresses);
  const bool refused = !messages.empty() && std::holds_alternative<JoinRefused>(messages.front().what);
  if (frame.node.former && !refused) simulation_.checker.node_rejoined(job->number, frame.node.id, *frame.node.former);
  if (superseded && !refused) {
    simulation_.checker.superseded(job->number, frame.node.id, sessions_.at(*superseded).attempt, attempt);
    end_session(*superseded);
  } else if (superseded) {
    job->sessions[frame.node.id] = *superseded;
    send(id, std::make_shared<ServerFrame>(to_frame(std::get<JoinRefused>(messages.front().what))), 0);
    end_session(id);
    messages.erase(messages.begin());
  }
  deliver(job, messages);
}

void Server::handle(SessionId id, const SessionBeat&) {
  static const auto beat = std::make_shared<const ServerFrame>(ServerBeat{});
  const JobPtr job = sessions_.at(id).job;
  send(id, beat, 0);
  deliver(job, job->membership.beat(simulation_.time.now(), sessions_.at(id).node));
}

void Server::handle(SessionId id, const SessionReady& frame) {
  const NodeSession session = sessions_.at(id);
  simulation_.note(who, "receives READY {} of {}", frame.generation, session.node);
  simulation_.checker.ready_received(session.job->number, session.node, frame.generation);
  deliver(session.job, session.job->membership.ready(simulation_.time.now(), session.node, frame.generation,
                                                     frame.worker_store_port));
}

void Server::handle(SessionId id, const SessionSuccess& frame) {
  const NodeSession session = sessions_.at(id);
  simulation_.note(who, "receives SUCCESS {} of {}", frame.generation, session.node);
  simulation_.checker.success_received(session.job->number, session.node, frame.generation);
  deliver(session.job, session.job->membership.success(simulation_.time.now(), session.node, frame.generation));
}

void Server::handle(SessionId id, const SessionFailure& frame) {
  const NodeSession session = sessions_.at(id);
  simulation_.note(who, "receives FAILURE {} of {}", frame.generation, session.node);
  simulation_.checker.reported_failure(session.job->number);
  deliver(session.job, session.job->membership.failure(simulation_.time.now(), session.node, frame.generation,
                                                       frame.failures, frame.survivors));
}

void Server::handle(SessionId id, const SessionRecovery& frame) {
  const NodeSession session = sessions_.at(id);
  simulation_.note(who, "receives RECOVERY {} '{}' of {}", frame.generation, frame.refusal, session.node);
  deliver(session.job, session.job->membership.recovery_answered(simulation_.time.now(), session.node, frame.generation,
                                                                 frame.refusal));
}

void Server::handle(SessionId id, const WorkersRecoverable& frame) {
  const NodeSession session = sessions_.at(id);
  deliver(session.job,
          session.job->membership.recoverable(simulation_.time.now(), session.node, frame.generation, frame.able));
}

void Server::handle(SessionId id, const SessionNode& frame) {
  const NodeSession session = sessions_.at(id);
  deliver(session.job,
          session.job->membership.report(simulation_.time.now(), session.node, frame.generation, frame.report));
}

void Server::handle(SessionId id, const SessionLeave& frame) {
  const NodeSession session = sessions_.at(id);
  simulation_.note(who, "receives LEAVE of {}", session.node);
  session.job->sessions.erase(session.node);
  simulation_.checker.node_left(session.job->number, session.node);
  end_session(id);
  deliver(session.job, session.job->membership.leave(simulation_.time.now(), session.node, frame.reason));
}

void Server::handle(SessionId id, const LeaveRequest& frame) {
  const NodeSession session = sessions_.at(id);
  simulation_.note(who, "receives ASK_LEAVE of {}", session.node);
  deliver(session.job, session.job->membership.leave_asked(simulation_.time.now(), session.node, frame.reason));
}

// ---- the job

Server::JobPtr Server::job_for(const JobPolicy& policy) {
  if (job_) return job_;
  job_ = std::make_shared<Job>(policy, simulation_.checker.job_started(policy));
  arm(job_);
  return job_;
}

void Server::deliver(const JobPtr& job, const MembershipMessages& messages) {
  for (const auto& message : messages) send_message(job, message);
  if (!job->membership.ended() && !job->membership.empty()) return arm(job);
  if (job_ != job) return;
  job_.reset();
  process_->after(result_grace, [self = shared_from_this(), job] {
    for (const auto& [node, id] : std::exchange(job->sessions, {})) self->end_session(id);
  });
}

void Server::send_message(const JobPtr& job, const MembershipMessage& message) {
  if (simulation_.trace && !std::holds_alternative<RendezvousWaiting>(message.what))
    simulation_.note(who, "sends {} {} to {}", name_of(message.what), job->membership.generation(),
                     fmt::join(message.to, " "));
  simulation_.checker.message_sent(job->number, message);
  // The frame is decoded once for all receivers, who would get the same from their bytes.
  const auto encoded = std::visit([](const auto& what) { return encode(to_frame(what)); }, message.what);
  const auto frame = std::make_shared<const ServerFrame>(decode_server_frame(encoded));
  const bool ends =
      std::holds_alternative<JoinRefused>(message.what) || std::holds_alternative<NodeDropped>(message.what);
  for (std::size_t index = 0; index < message.to.size(); ++index) {
    const auto session = job->sessions.find(message.to[index]);
    if (session == job->sessions.end()) continue;
    const SessionId id = session->second;
    send(id, frame, static_cast<int>(index));
    if (!ends) continue;
    job->sessions.erase(session);
    end_session(id);
  }
}

void Server::send(SessionId id, std::shared_ptr<const ServerFrame> frame, int index) {
  const NodeSession& session = sessions_.at(id);
  session.connection->send(Connection::server, {.frame = std::move(frame), .index = index, .job = session.job->number});
}

void Server::arm(const JobPtr& job) {
  const Time due = job->membership.next_tick();
  if (job->armed_for && *job->armed_for <= due) return;
  job->armed_for = due;
  process_->at(due, [self = shared_from_this(), job, due] {
    if (job->armed_for != due) return;
    job->armed_for.reset();
    self->deliver(job, job->membership.tick(self->simulation_.time.now()));
  });
}

}  // namespace ddprun::testing
