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

#include "ddprun/rendezvous/trust/admission.h"
#include "ddprun/rendezvous/trust/client_hello.h"
#include "ddprun/rendezvous/trust/server_handshake.h"
#include "ddprun/rendezvous/trust/socket_owner.h"
#include "ddprun/rendezvous/trust/tls_channel.h"

namespace ddprun {

// Decides which connections of a store server are admitted. A connection that begins with TLS or a challenge has to
// prove that it knows the token. For a plain one the kernel of this host is asked whose its socket is; if it is of
// another host, or of another agent's process, the agents of that host are asked, which are connections that have
// proved that they know the token. Until they answer it is held. Held connections, those whose first message has proved
// that they know the key, and pending ones, of which nothing is known yet, are counted apart, so that none keeps the
// others out.
//
// A state machine without I/O: events of numbered connections in, actions out.
//
// Ownership: borrows the admission, whose credentials must outlive the channels. Threads: not thread-safe. Errors: none
// thrown but those of the kernel's functions; what is wrong with a connection is a Refuse.
class ClientAdmission {
 public:
  using Id = std::uint64_t;
  // What the kernel of this host says.
  struct Kernel {
    std::function<SocketEnds(Id)> ends_of;  // of a connection, as the client sees them
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
    std::string rest;                     // what the client has sent already, clear text
  };
  struct Refuse {
    Id id;
    std::string reason;
    std::string rest;  // as above, of a plain client
  };
  using Action = std::variant<Send, Hold, Ask, Admit, Refuse>;
  using Actions = std::vector<Action>;

  ClientAdmission(const Admission& admission, Kernel kernel) : admission_(admission), kernel_(std::move(kernel)) {}

  // A connection was accepted.
  void opened(Id id);
  // At most this many bytes may be passed to received() now.
  std::size_t capacity(Id id) const { return handshakes_.at(id).capacity(); }
  // REQUIRES: opened, and neither held, admitted nor refused.
  Actions received(Id id, std::string_view bytes);
  // A connection that was admitted by its token answers for the host at this address.
  Actions agent_opened(Id agent, const std::string& address);
  // The agent's answer: the number of the question, negative for no.
  Actions answered(Id agent, std::int64_t answer);
  // The connection has closed, whatever it was.
  void closed(Id id);
  // The time of a connection is over.
  Actions expired(Id id);

  std::size_t pending() const { return unknown_.size(); }
  std::size_t held() const { return held_.size(); }
  // Neither held nor decided.
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
  // Why a client on this host is not admitted; empty if it is.
  std::string objection_to(const SocketOwner& owner) const;
  Actions hold(Id id, SocketEnds client);
  void ask(Id agent, Id about, Actions& actions);
  // Removes the answer that the agent owes; false if it owes none.
  bool take_question(Agent& agent, Id about);
  ServerHandshake take_handshake(Id id);
  Actions refuse_open(Id id, const std::string& reason);
  Actions refuse_held(Id id, const std::string& reason);
  Actions admit_plain(Id id);

  const Admission& admission_;
  const Kernel kernel_;
  SeenHellos seen_;
  std::map<Id, ServerHandshake> handshakes_;
  std::set<Id> unknown_;  // of handshakes_
  std::map<Id, Held> held_;
  std::map<Id, Agent> agents_;
};

}  // namespace ddprun
