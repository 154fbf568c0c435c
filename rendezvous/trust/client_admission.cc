#include "ddprun/rendezvous/trust/client_admission.h"

#include <algorithm>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/rendezvous/trust/authentication_error.h"
#include "ddprun/rendezvous/trust/owner_question.h"

namespace ddprun {
namespace {

constexpr const char* unconfirmed =
    "a client without the token, and no agent on its host says that its socket belongs to the user of the job";

bool is_of_this_host(const SocketEnds& client) {
  return client.own.address == client.peer.address || is_loopback_address(client.own.address);
}

}  // namespace

void ClientAdmission::opened(Id id, SocketEnds client) {
  pending_.try_emplace(id, admission_.credentials.get()).first->second.client = std::move(client);
}

ClientAdmission::Actions ClientAdmission::received(Id id, std::string_view bytes) {
  auto& pending = pending_.at(id);
  Actions actions;
  const auto send_output = [&] {
    if (auto output = pending.handshake.take_output(); !output.empty())
      actions.emplace_back(Send{id, std::move(output)});
  };
  try {
    const auto state = pending.handshake.feed(bytes);
    send_output();
    if (state == ServerHandshake::State::plain) return decide_plain(id, pending);
    if (state == ServerHandshake::State::admitted) actions.push_back(admit(id, true));
  } catch (const Error& e) {
    send_output();
    for (auto& action : refuse(id, e.what())) actions.push_back(std::move(action));
  }
  return actions;
}

ClientAdmission::Actions ClientAdmission::decide_plain(Id id, Pending& pending) {
  if (const auto owner = find_owner_(pending.client)) {
    if (*owner != admission_.user && !(*owner == 0 && admission_.admits_root))
      return refuse(id, fmt::format("its socket belongs to user {} and the job to user {}", *owner, admission_.user));
    Actions actions;
    actions.push_back(admit(id, false));
    return actions;
  }
  if (is_of_this_host(pending.client)) return refuse(id, "no process of this host holds its socket");
  if (!admission_.credentials) return refuse(id, "it is on another host, and the job is on this one alone");
  pending.held = true;
  Actions actions;
  actions.emplace_back(Hold{id});
  for (const auto& [agent, facts] : agents_)
    if (facts.address == pending.client.own.address) ask(agent, id, actions);
  return actions;
}

void ClientAdmission::ask(Id agent, Id about, Actions& actions) {
  auto& pending = pending_.at(about);
  ++pending.unanswered;
  agents_.at(agent).questions.push_back(about);
  actions.emplace_back(Ask{agent, encode(OwnerQuestion{about, pending.client})});
}

ClientAdmission::Actions ClientAdmission::agent_opened(Id agent, const std::string& address) {
  Actions actions;
  if (!agents_.try_emplace(agent, Agent{address, {}}).second) return actions;
  for (const auto& [id, pending] : pending_)
    if (pending.held && pending.client.own.address == address) ask(agent, id, actions);
  return actions;
}

bool ClientAdmission::take_question(Agent& agent, Id about) {
  const auto found = std::find(agent.questions.begin(), agent.questions.end(), about);
  if (found == agent.questions.end()) return false;
  agent.questions.erase(found);
  return true;
}

ClientAdmission::Actions ClientAdmission::answered(Id agent, std::int64_t answer) {
  const auto found = agents_.find(agent);
  const auto about = answer < 0 ? 0 - static_cast<Id>(answer) : static_cast<Id>(answer);
  if (found == agents_.end() || !take_question(found->second, about)) return {};
  const auto pending = pending_.find(about);
  if (pending == pending_.end()) return {};  // it has closed, or another agent has answered
  --pending->second.unanswered;
  Actions actions;
  if (answer > 0)
    actions.push_back(admit(about, false));
  else if (pending->second.unanswered == 0)
    return refuse(about, unconfirmed);
  return actions;
}

ClientAdmission::Actions ClientAdmission::closed(Id id) {
  Actions actions;
  pending_.erase(id);
  const auto agent = agents_.find(id);
  if (agent == agents_.end()) return actions;
  for (const auto about : agent->second.questions)
    if (const auto pending = pending_.find(about); pending != pending_.end()) --pending->second.unanswered;
  agents_.erase(agent);  // another may come: the time of those that it was asked about goes on
  return actions;
}

ClientAdmission::Actions ClientAdmission::expired(Id id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return {};
  return refuse(id, found->second.held ? unconfirmed : "it has not authenticated in time");
}

std::optional<ClientAdmission::Id> ClientAdmission::oldest() const {
  return pending_.empty() ? std::nullopt : std::optional(pending_.begin()->first);
}

ClientAdmission::Actions ClientAdmission::refuse(Id id, const std::string& reason) {
  Actions actions;
  actions.emplace_back(Refuse{id, reason, pending_.at(id).handshake.take_rest()});
  pending_.erase(id);
  return actions;
}

ClientAdmission::Action ClientAdmission::admit(Id id, bool by_token) {
  auto node = pending_.extract(id);
  auto& handshake = node.mapped().handshake;
  return Admit{id, by_token, handshake.take_channel(), handshake.take_rest()};
}

}  // namespace ddprun
