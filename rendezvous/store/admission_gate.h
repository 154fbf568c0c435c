#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include <boost/asio/steady_timer.hpp>

#include "common/unique_fd.h"
#include "rendezvous/store/log_limiter.h"
#include "rendezvous/store/ready_set.h"
#include "rendezvous/trust/admission.h"
#include "rendezvous/trust/client_admission.h"
#include "rendezvous/trust/job_sockets.h"
#include "rendezvous/trust/socket_owner.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun::rendezvous {

// The connections of a store server that are not admitted yet: reads from them what ClientAdmission asks for, hands
// over those that it admits and closes the others. As little as possible is done for a connection before its first
// bytes are judged, since anybody can open thousands of them a second.
//
// Ownership: owns the sockets until they are admitted; the event loop must outlive it. Handlers that are queued keep it
// alive and do nothing after stop(), which may be called from within a handler. Threads: the loop's. Errors: the
// constructor throws Errc::unsupported where the kernel does not report the owner of a socket, and Errc::io; add()
// throws Errc::io.
class AdmissionGate : public std::enable_shared_from_this<AdmissionGate> {
 public:
  using Id = ClientAdmission::Id;
  struct Admitted {
    Id id;
    UniqueFd socket;
    bool by_token;
    std::unique_ptr<TlsChannel> channel;  // null: clear text
    std::string rest;                     // clear text that the client has sent already
  };
  struct Handlers {
    std::function<void(Admitted)> admit;
    // A question for an agent that was admitted.
    std::function<void(Id agent, const std::string& question)> ask;
    // Returns the bytes that tell a refused client the reason, from the first bytes that it has sent.
    std::function<std::string(std::string_view sent)> explain;
    // Called when a connection may be accepted after has_room() has returned false.
    std::function<void()> room;
  };

  AdmissionGate(boost::asio::io_context& loop, std::shared_ptr<const Admission> admission, Handlers handlers);

  void start() { wait_for_events(); }
  void stop();

  // Returns false while the number of pending connections is at its limit: further ones stay in the kernel's queue
  // until a pending one has completed its handshake, or the oldest has been closed.
  bool has_room();
  // peer is the client's address. REQUIRES: has_room(), and an id above all earlier ones.
  void add(Id id, UniqueFd socket, const sockaddr_storage& peer);
  // Frees descriptors: closes what has not been admitted for this long. Returns whether there was any.
  bool close_older_than(std::chrono::milliseconds age);

  // Events: an admitted connection answers for the host at this address; it has answered; any connection has closed.
  void agent_opened(Id agent, const std::string& address);
  void answered(Id agent, std::int64_t answer);
  void closed(Id id);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    UniqueFd socket;
    sockaddr_storage peer;  // converted to text on demand, which is rare
    Clock::time_point began;
    bool watched = false;  // in ready_
  };
  using Clients = std::map<Id, Client>;

  SocketEnds ends_of(Id id) const;
  void wait_for_events();
  void serve_events();
  // Returns false if no bytes have arrived.
  bool read(Id id);
  void execute(ClientAdmission::Actions actions);
  void execute(ClientAdmission::Send& action);
  void execute(ClientAdmission::Hold& action);
  void execute(ClientAdmission::Ask& action);
  void execute(ClientAdmission::Admit& action);
  void execute(ClientAdmission::Refuse& action);
  void log_refusal(Id id, const std::string& reason);
  Client take(Id id);
  void offer_room();
  std::optional<Clock::time_point> next_expiry() const;
  void arm_timer();
  void expire();

  const std::shared_ptr<const Admission> admission_;
  const Handlers handlers_;
  SocketOwners owners_;
  JobSockets job_;
  ClientAdmission clients_;
  ReadySet ready_;
  Clients sockets_;  // by the order of arrival
  boost::asio::steady_timer timer_;
  std::optional<Clock::time_point> timer_set_for_;
  bool full_ = false;  // has_room() has returned false
  LogLimiter limiter_{{.burst = 1, .window = std::chrono::minutes(1)}};
  bool stopped_ = false;
};

}  // namespace ddprun::rendezvous
