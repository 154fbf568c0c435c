#include "rendezvous/membership/session_client.h"

#include <utility>
#include <variant>

#include "common/wall_clock.h"
#include "rendezvous/membership/node_sessions.h"

namespace ddprun {
SessionClient::SessionClient(boost::asio::io_context& loop, SessionClientOptions options)
    : loop_(loop), options_(std::move(options)) {}

SessionClient::~SessionClient() {
  if (sessions_) sessions_->stop();
}

void SessionClient::join(const NodeInfo& self, const JobPolicy& policy, Handler handler) {
  if (sessions_) sessions_->stop();
  sessions_ =
      std::make_shared<NodeSessions>(loop_, options_, self, policy, std::move(handler), relay_handlers_, workers_wait_);
  sessions_->start();
}

void SessionClient::redial() {
  if (sessions_) sessions_->redial();
}

void SessionClient::give_server_up() {
  if (sessions_) sessions_->give_server_up();
}

void SessionClient::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  if (sessions_) sessions_->ready(generation, worker_store_port);
}

void SessionClient::report_success(std::int64_t generation) {
  if (sessions_) sessions_->send(SessionSuccess{generation});
}

void SessionClient::report_preempted(std::int64_t generation) {
  if (sessions_) sessions_->send(SessionPreempted{generation});
}

void SessionClient::report_node(std::int64_t generation, const NodeReport& report) {
  if (sessions_) sessions_->send(SessionNode{generation, report});
}

void SessionClient::request_stop(const std::string& who) {
  if (sessions_) sessions_->request_stop(who);
}

void SessionClient::report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                                   Survivors survivors) {
  if (sessions_) sessions_->send(SessionFailure{generation, wall_clock_us(), survivors, failures});
}

void SessionClient::answer_recovery(std::int64_t generation, const std::string& refusal) {
  if (sessions_) sessions_->send(SessionRecovery{generation, refusal});
}

bool SessionClient::relay(const RelayMessage& message) {
  if (!sessions_ || !sessions_->has_session()) return false;
  std::visit([this](const auto& one) { sessions_->send(one); }, message);
  return true;
}

void SessionClient::ask_to_leave(const std::string& reason) {
  if (sessions_) sessions_->send(LeaveRequest{reason});
}

void SessionClient::report_recoverable(std::int64_t generation, bool able) {
  if (sessions_) sessions_->send(WorkersRecoverable{generation, able});
}

void SessionClient::keep_round(bool done) {
  if (sessions_) sessions_->keep_round(done);
}

void SessionClient::give_up_round() {
  if (sessions_) sessions_->give_up_round();
}

void SessionClient::leave(const std::string& reason) {
  if (sessions_) sessions_->leave(reason);
}

}  // namespace ddprun
