#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/trust/admission.h"
#include "rendezvous/trust/client_hello.h"
#include "rendezvous/trust/server_handshake.h"
#include "rendezvous/trust/socket_owner.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun {

// Decides which connections of a store server are admitted. A connection that begins with TLS or a challenge has to
// prove that it knows the token. For a plain connection the kernel of this host is asked for the owner of its socket;
// if the socket is on another host, or belongs to another agent's process, the agents of that host are asked, which are
// connections that have proved that they know the token. Until they answer the connection is held. Held connections,
// those whose first message has proved that they know the key, and pending ones, of which nothing is known yet, are
// counted apart, so that none keeps the others out.
//
// A state machine without I/O: events of numbered connections in, actions out.
//
// Ownership: borrows the admission, whose credentials must outlive the channels. Threads: not thread-safe. Errors: none
// thrown except those of the kernel's functions; a problem of a connection is reported as a Refuse.
class ClientAdmission {
 public:
  using Id = std::uint64_t;
  // The answers of the kernel of this host.
  struct Kernel {
    std::function<SocketEnds(Id)> ends_of;  // both ends of a connection, as the client sees them
    std::function<std::optional<SocketOwner>(const SocketEnds&)> owner_of;
    std::function<bool(std::uint64_t inode)> is_of_job;
  };

  struct Send {  // bytes of the handshake, as they are
    Id to;
    std::string bytes;
  };
  struct Hold {  // read no more until another action
    Id id;
  };
  struct Ask {  // a question for an agent (owner_question.h)
    Id agent;
    std::string question;
  };
  struct Admit {
    Id id;
    bool by_token;                        // it may be an agent
    std::unique_ptr<TlsChannel> channel;  // null: clear text
    std::string rest;                     // clear text that the client has sent already
  };
  struct Refuse {
    Id id;
    std::string reason;
    std::string rest;  // as in Admit, for a plain client
  };
  using Action = std::variant<Send, Hold, Ask, Admit, Refuse>;
  using Actions = std::vector<Action>;

  ClientAdmission(const Admission& admission, Kernel kernel) : admission_(admission), kernel_(std::move(kernel)) {}

  // A connection was accepted.
  void opened(Id id);
  // The number of bytes that may be passed to received() now.
  std::size_t capacity(Id id) const { return handshakes_.at(id).capacity(); }
  // REQUIRES: opened, and neither held, admitted nor refused.
  Actions received(Id id, std::string_view bytes);
  // A connection that was admitted by its token answers for the host at this address.
  Actions agent_opened(Id agent, const std::string& address);
  // The agent's answer: the number of the question, negative for no.
  Actions answered(Id agent, std::int64_t answer);
  // The connection has closed, whatever its state was.
  void closed(Id id);
  // The time limit of a connection has passed.
  Actions expired(Id id);

  std::size_t pending() const { return unknown_.size(); }
  std::size_t held() const { return held_.size(); }
  // Returns whether the connection is neither held nor decided.
  bool is_open(Id id) const { return handshakes_.contains(id); }
  bool is_held(Id id) const { return held_.contains(id); }
  // The pending connection that was accepted first.
  std::optional<Id> oldest_pending() const;

 private:
  struct Held {
    SocketEnds client;
    std::string rest;
    std::size_t unanswered = 0;  // questions about it
  };
  struct Agent {
    std::string address;
    std::vector<Id> questions;  // the connections that it has been asked about
  };

  Actions decide_plain(Id id);
  // Returns why a client on this host is not admitted; empty if it is.
  std::string objection_to(const SocketOwner& owner) const;
  Actions hold(Id id, SocketEnds client);
  void ask(Id agent, Id about, Actions& actions);
  // Removes the answer that the agent owes; returns false if it owes none.
  bool take_question(Agent& agent, Id about);
  ServerHandshake take_handshake(Id id);
  Actions refuse_open(Id id, const std::string& reason);
  Actions refuse_held(Id id, const std::string& reason);
  Actions admit_plain(Id id);

  const Admission& admission_;
  const Kernel kernel_;
  SeenHellos seen_;
  std::map<Id, ServerHandshake> handshakes_;
  std::set<Id> unknown_;  // those of handshakes_ about which nothing is known yet
  std::map<Id, Held> held_;
  std::map<Id, Agent> agents_;
};

}  // namespace ddprun
