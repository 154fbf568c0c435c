// A node answers other programs through its control socket, and other agents through the rendezvous.
#include <csignal>
#include <utility>

#include "common/log.h"
#include "common/printable.h"
#include "launcher/agent/node_agent.h"
#include "launcher/agent/requested_signals.h"
#include "rendezvous/backend.h"

namespace ddprun {

void NodeAgent::open_control_socket() {
  control_ = std::make_unique<ControlSocket>(
      loop_, spec_.group.environment,
      ControlSocket::Handlers{
          .status = [this] { return to_json(record()); },
          .view = [this] { return watch_.snapshot(); },
          .stop = [this](const std::string& who) { act(state_.on_stop_request(who)); },
          .signal =
              [this](int rank, int number, const std::string& who, const auto& reply) {
                signal_rank(rank, {number, who}, reply);
              },
          .attach = [this](int rank, UniqueFd c) { attached_.attach(rank, std::move(c)); },
          .store = [this](std::uint16_t port, UniqueFd connection,
                          const std::string& sent) { store_.adopt(port, std::move(connection), sent); }});
  if (!control_->path().empty()) guardian_.remove_with_job(control_->path());
}

// Returns why a rank's worker is not one of this node; empty if it is.
std::string NodeAgent::no_such_rank(int rank) const {
  if (!round_) return "the job's workers have not been started";
  const int local_rank = local_rank_of(rank);
  return local_rank >= 0 && local_rank < self().nproc ? "" : fmt::format("rank {} is not on this node", rank);
}

// Returns why the signal was not sent; empty if it was.
std::string NodeAgent::signal_own_rank(int rank, const RequestedSignal& signal) {
  const auto refusal = no_such_rank(rank);
  return refusal.empty() ? send_requested_signal(group_, local_rank_of(rank), signal) : refusal;
}

void NodeAgent::signal_rank(int rank, const RequestedSignal& signal, const ControlSocket::SignalReply& reply) {
  if (no_such_rank(rank).empty()) return reply(signal_own_rank(rank, signal));
  remote_signals_.ask(rank, signal, reply);
}

// The others have lost a rank whose process may still run. Its end leads to a replacement, and fences it.
void NodeAgent::end_lost_workers() {
  if (!round_ || finish_ || !spec_.restarts.single_workers) return;
  for (const auto& [rank, seen] : store_.take_lost(*round_, state_.members()))
    signal_rank(rank, {SIGKILL, "ddprun", printable(seen)}, [rank = rank](const std::string& problem) {
      if (!problem.empty()) log::warn("rank {} is lost, and was not ended: {}", rank, problem);
    });
}

// Sends a message to the agent of another node. Returns why it cannot be sent; empty if it was.
std::string NodeAgent::relay(const RelayMessage& message) {
  if (!relays()) return "the agents of this job have no connection to each other";
  return backend_->rendezvous().relay(message) ? "" : "this agent has no connection to the rendezvous server now";
}

void NodeAgent::on_relayed(const RelayMessage& message) {
  if (const auto* asked = std::get_if<SignalRank>(&message)) {
    const auto& [number, who, why] = asked->signal;
    relay(SignalAnswer{asked->number, signal_own_rank(asked->rank, {number, printable(who), printable(why)})});
  } else if (const auto* answer = std::get_if<SignalAnswer>(&message))
    remote_signals_.answered(*answer);
  else
    attached_.received(message);
}

}  // namespace ddprun
