#include "rendezvous/trust/client_admission.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/trust/owner_question.h"

namespace ddprun {
namespace {

constexpr const char* unconfirmed =
    "a client without the token, and no agent on its host says that its socket belongs to the user and a process of "
    "the job";

bool is_of_this_host(const SocketEnds& client) {
  return client.own.address == client.peer.address || is_loopback_address(client.own.address);
}

template <class T>
ClientAdmission::Actions one(T action) {
  ClientAdmission::Actions actions;
  actions.emplace_back(std::move(action));
  return actions;
}

}  // namespace

void ClientAdmission::opened(Id id) {
  handshakes_.try_emplace(id, admission_.credentials.get(), seen_);
  unknown_.insert(id);
}

ClientAdmission::Actions ClientAdmission::received(Id id, std::string_view bytes) {
  auto& handshake = handshakes_.at(id);
  Actions actions;
  const auto send_output = [&] {
    if (auto output = handshake.take_output(); !output.empty()) actions.emplace_back(Send{id, std::move(output)});
  };
  try {
    const auto state = handshake.feed(bytes);
    send_output();
    if (handshake.knows_key()) unknown_.erase(id);
    if (state == ServerHandshake::State::plain) return decide_plain(id);
    if (state == ServerHandshake::State::refused) {
      for (auto& action : refuse_open(id, std::string(handshake.reason()))) actions.push_back(std::move(action));
    } else if (state == ServerHandshake::State::admitted) {
      auto complete = take_handshake(id);
      actions.emplace_back(Admit{id, true, complete.take_channel(), complete.take_rest()});
    }
  } catch (const Error& e) {
    send_output();
    for (auto& action : refuse_open(id, e.what())) actions.push_back(std::move(action));
  }
  return actions;
}

std::string ClientAdmission::objection_to(const SocketOwner& owner) const {
  if (owner.user == 0 && admission_.user != 0 && admission_.admits_root) return {};
  if (owner.user != admission_.user && !(owner.user == 0 && admission_.admits_root))
    return fmt::format("its socket belongs to user {} and the job to user {}", owner.user, admission_.user);
  if (admission_.clients == Admission::Clients::of_job && !kernel_.is_of_job(owner.inode))
    return "its socket belongs to the user of the job and to no process of the job";
  return {};
}

ClientAdmission::Actions ClientAdmission::decide_plain(Id id) {
  auto client = kernel_.ends_of(id);
  const auto owner = kernel_.owner_of(client);
  const auto objection = owner ? objection_to(*owner) : "no process of this host holds its socket";
  if (objection.empty()) return admit_plain(id);
  // Another agent of this host may know the process.
  const bool others_decide = owner ? owner->user == admission_.user : !is_of_this_host(client);
  if (!others_decide) return refuse_open(id, objection);
  if (!admission_.credentials)
    return refuse_open(id, owner ? objection : "it is on another host, and the job is only on this one");
  return hold(id, std::move(client));
}

// Where max_held connections are held, the oldest of them is refused.
ClientAdmission::Actions ClientAdmission::hold(Id id, SocketEnds client) {
  Actions actions;
  if (held_.size() >= admission_.max_held) actions = refuse_held(held_.begin()->first, unconfirmed);
  held_.emplace(id, Held{.client = std::move(client), .rest = take_handshake(id).take_rest()});
  actions.emplace_back(Hold{id});
  for (const auto& [agent, facts] : agents_)
    if (facts.address == held_.at(id).client.own.address) ask(agent, id, actions);
  return actions;
}

void ClientAdmission::ask(Id agent, Id about, Actions& actions) {
  auto& held = held_.at(about);
  ++held.unanswered;
  agents_.at(agent).questions.push_back(about);
  actions.emplace_back(Ask{agent, encode(OwnerQuestion{about, held.client})});
}

ClientAdmission::Actions ClientAdmission::agent_opened(Id agent, const std::string& address) {
  Actions actions;
  if (!agents_.try_emplace(agent, Agent{address, {}}).second) return actions;
  for (const auto& [id, held] : held_)
    if (held.client.own.address == address) ask(agent, id, actions);
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
  const auto held = held_.find(about);
  if (held == held_.end()) return {};  // it has closed, or another agent has answered
  --held->second.unanswered;
  if (answer > 0) {
    auto admit = one(Admit{about, false, nullptr, std::move(held->second.rest)});
    held_.erase(held);
    return admit;
  }
  return held->second.unanswered == 0 ? refuse_held(about, unconfirmed) : Actions{};
}

void ClientAdmission::closed(Id id) {
  handshakes_.erase(id);
  unknown_.erase(id);
  held_.erase(id);
  const auto agent = agents_.find(id);
  if (agent == agents_.end()) return;
  for (const auto about : agent->second.questions)
    if (const auto held = held_.find(about); held != held_.end()) --held->second.unanswered;
  agents_.erase(agent);  // another may come: the questions that this one was asked still expire
}

ClientAdmission::Actions ClientAdmission::expired(Id id) {
  if (handshakes_.contains(id)) return refuse_open(id, "it has not authenticated in time");
  return held_.contains(id) ? refuse_held(id, unconfirmed) : Actions{};
}

std::optional<ClientAdmission::Id> ClientAdmission::oldest_pending() const {
  return unknown_.empty() ? std::nullopt : std::optional(*unknown_.begin());
}

ServerHandshake ClientAdmission::take_handshake(Id id) {
  unknown_.erase(id);
  return std::move(handshakes_.extract(id).mapped());
}

ClientAdmission::Actions ClientAdmission::refuse_open(Id id, const std::string& reason) {
  return one(Refuse{id, reason, take_handshake(id).take_rest()});
}

ClientAdmission::Actions ClientAdmission::refuse_held(Id id, const std::string& reason) {
  auto refuse = one(Refuse{id, reason, std::move(held_.at(id).rest)});
  held_.erase(id);
  return refuse;
}

ClientAdmission::Actions ClientAdmission::admit_plain(Id id) {
  return one(Admit{id, false, nullptr, take_handshake(id).take_rest()});
}

}  // namespace ddprun
