#include "tests/simulation/server.h"

#include <optional>
#include <utility>

#include "ddprun/rendezvous/membership/session_protocol.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr Duration verdict_grace = 60s;
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
  static constexpr const char* names[] = {"REFUSED", "DROPPED", "WAITING", "PROPOSED", "STARTED", "ENDED"};
  return names[what.index()];
}

}  // namespace

struct Server::Job {
  Job(const JobPolicy& policy, int its_number) : membership(policy), number(its_number) {}

  Membership membership;
  const int number;  // the referee's
  std::map<std::string, SessionId> sessions;
  std::optional<Time> armed_for;
};

void Server::accept(const ConnectionPtr& connection) {
  const SessionId id = next_id_++;
  sessions_[id].connection = connection;
  const std::weak_ptr<Server> weak = weak_from_this();
  connection->set_handlers(Connection::server, {.packet =
                                                    [weak, id](const Packet& packet) {
                                                      if (const auto self = weak.lock()) self->hear(id, packet);
                                                    },
                                                .closed =
                                                    [weak, id] {
                                                      if (const auto self = weak.lock()) self->closed(id);
                                                    }});
}

void Server::drain(std::function<void()> done) {
  turning_away_ = true;
  drained_ = std::move(done);
  if (sessions_.empty()) process_->after(0s, drained_);
}

void Server::announce_shutdown(const std::string& reason) {
  turning_away_ = true;
  const JobPtr job = job_;
  if (!job) return;
  deliver(job, job->membership.server_leaves(world_.time.now(), reason));
  if (job->membership.ended()) return;
  job_.reset();
  const auto farewell = std::make_shared<const ServerFrame>(SessionShutdown{reason});
  for (const auto& [node, id] : std::exchange(job->sessions, {})) {
    send(id, farewell, 0);
    end_session(id);
  }
}

void Server::hear(SessionId id, const Packet& packet) {
  const NodeFrame frame = decode_node_frame(packet.bytes);
  const Session& session = sessions_.at(id);
  if (const auto* join = std::get_if<SessionJoin>(&frame)) return take_join(id, *join, packet.place);
  if (!session.job || !speaks_for_node(id, session)) return;
  std::visit([&](const auto& one) { take(id, one); }, frame);
}

bool Server::speaks_for_node(SessionId id, const Session& session) {
  const auto current = session.job->sessions.find(session.node);
  return current != session.job->sessions.end() && current->second == id;
}

void Server::closed(SessionId id) {
  const Session session = std::move(sessions_.at(id));
  sessions_.erase(id);
  if (session.job && speaks_for_node(id, session)) {
    session.job->sessions.erase(session.node);
    world_.note(who, "hears {} close", session.node);
    world_.referee.node_gone(session.job->number, session.node);
    deliver(session.job, session.job->membership.session_closed(world_.time.now(), session.node, "closed"));
  }
  if (drained_ && sessions_.empty()) drained_();
}

void Server::end_session(SessionId id) {
  sessions_.at(id).connection->close(Connection::server);
  // As the hub hears of it, behind what it does now.
  process_->after(0s, [self = shared_from_this(), id] { self->closed(id); });
}

// ---- frames

// A later session of a node takes over from an earlier one, unless it is refused.
void Server::take_join(SessionId id, const SessionJoin& frame, int attempt) {
  if (turning_away_) return end_session(id);
  Session& session = sessions_.at(id);
  const JobPtr job = job_for(frame.policy);
  session.job = job;
  session.node = frame.node.id;
  session.attempt = attempt;
  world_.note(who, "hears JOIN of {}", frame.node.id);
  const auto before = job->sessions.find(frame.node.id);
  const auto superseded = before == job->sessions.end() ? std::nullopt : std::optional(before->second);
  const SessionAddresses addresses{session.connection->host(Connection::client).name,
                                   session.connection->host(Connection::server).name};
  job->sessions[frame.node.id] = id;
  world_.referee.node_joined(job->number, frame.node.id);
  auto messages = job->membership.join(world_.time.now(), frame.node, frame.policy, addresses);
  const bool refused = !messages.empty() && std::holds_alternative<JoinRefused>(messages.front().what);
  if (frame.node.former && !refused) world_.referee.came_back(job->number, *frame.node.former);
  if (superseded && !refused) {
    world_.referee.superseded(job->number, frame.node.id, sessions_.at(*superseded).attempt, attempt);
    end_session(*superseded);
  } else if (superseded) {
    job->sessions[frame.node.id] = *superseded;
    send(id, std::make_shared<ServerFrame>(to_frame(std::get<JoinRefused>(messages.front().what))), 0);
    end_session(id);
    messages.erase(messages.begin());
  }
  deliver(job, messages);
}

void Server::take(SessionId id, const SessionBeat&) {
  static const auto beat = std::make_shared<const ServerFrame>(SessionBeat{});
  const JobPtr job = sessions_.at(id).job;
  send(id, beat, 0);
  deliver(job, job->membership.beat(world_.time.now(), sessions_.at(id).node));
}

void Server::take(SessionId id, const SessionReady& frame) {
  const Session session = sessions_.at(id);
  world_.note(who, "hears READY {} of {}", frame.generation, session.node);
  world_.referee.said_ready(session.job->number, session.node, frame.generation);
  deliver(session.job,
          session.job->membership.ready(world_.time.now(), session.node, frame.generation, frame.worker_store_port));
}

void Server::take(SessionId id, const SessionSuccess& frame) {
  const Session session = sessions_.at(id);
  world_.note(who, "hears SUCCESS {} of {}", frame.generation, session.node);
  world_.referee.said_success(session.job->number, session.node, frame.generation);
  deliver(session.job, session.job->membership.success(world_.time.now(), session.node, frame.generation));
}

void Server::take(SessionId id, const SessionFailure& frame) {
  const Session session = sessions_.at(id);
  world_.note(who, "hears FAILURE {} of {}", frame.generation, session.node);
  world_.referee.reported_failure(session.job->number);
  deliver(session.job,
          session.job->membership.failure(world_.time.now(), session.node, frame.generation, frame.failures));
}

void Server::take(SessionId id, const SessionLeave& frame) {
  const Session session = sessions_.at(id);
  world_.note(who, "hears LEAVE of {}", session.node);
  session.job->sessions.erase(session.node);
  world_.referee.node_gone(session.job->number, session.node);
  end_session(id);
  deliver(session.job, session.job->membership.leave(world_.time.now(), session.node, frame.reason));
}

// ---- the job

Server::JobPtr Server::job_for(const JobPolicy& policy) {
  if (job_) return job_;
  job_ = std::make_shared<Job>(policy, world_.referee.job_began(policy));
  arm(job_);
  return job_;
}

void Server::deliver(const JobPtr& job, const MembershipMessages& messages) {
  for (const auto& message : messages) say(job, message);
  if (!job->membership.ended() && !job->membership.empty()) return arm(job);
  if (job_ != job) return;
  job_.reset();
  process_->after(verdict_grace, [self = shared_from_this(), job] {
    for (const auto& [node, id] : std::exchange(job->sessions, {})) self->end_session(id);
  });
}

void Server::say(const JobPtr& job, const MembershipMessage& message) {
  if (world_.trace && !std::holds_alternative<RendezvousWaiting>(message.what))
    world_.note(who, "says {} {} to {}", name_of(message.what), job->membership.generation(),
                fmt::join(message.to, " "));
  world_.referee.said(job->number, message);
  // One decoding for all: what is decoded is what each of them would make of its bytes.
  const auto encoded = std::visit([](const auto& what) { return encode(to_frame(what)); }, message.what);
  const auto frame = std::make_shared<const ServerFrame>(decode_server_frame(encoded));
  const bool ends =
      std::holds_alternative<JoinRefused>(message.what) || std::holds_alternative<NodeDropped>(message.what);
  for (std::size_t place = 0; place < message.to.size(); ++place) {
    const auto session = job->sessions.find(message.to[place]);
    if (session == job->sessions.end()) continue;
    const SessionId id = session->second;
    send(id, frame, static_cast<int>(place));
    if (!ends) continue;
    job->sessions.erase(session);
    end_session(id);
  }
}

void Server::send(SessionId id, std::shared_ptr<const ServerFrame> frame, int place) {
  const Session& session = sessions_.at(id);
  session.connection->send(Connection::server, {.frame = std::move(frame), .place = place, .job = session.job->number});
}

void Server::arm(const JobPtr& job) {
  const Time due = job->membership.next_tick();
  if (job->armed_for && *job->armed_for <= due) return;
  job->armed_for = due;
  process_->at(due, [self = shared_from_this(), job, due] {
    if (job->armed_for != due) return;
    job->armed_for.reset();
    self->deliver(job, job->membership.tick(self->world_.time.now()));
  });
}

}  // namespace ddprun::testing
