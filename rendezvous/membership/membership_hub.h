#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ddprun/rendezvous/membership/membership.h"
#include "ddprun/rendezvous/store/session_hub.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct MembershipHubOptions {
  MembershipOptions membership;
  // A node that has been told the verdict ends its session; after this long the server does.
  std::chrono::milliseconds verdict_grace{std::chrono::seconds(60)};
  std::size_t max_jobs = 4096;
};

// What stands behind the sessions of a store server: one Membership a run id, its timers, and which session speaks for
// which node. A job that has its verdict makes room for another of the same id at once, and is forgotten once its
// sessions have ended. Lives on the server's event loop; must outlive the server's use of it
// (StoreServer::set_session_hub).
class MembershipHub final : public SessionHub {
 public:
  MembershipHub(boost::asio::io_context& loop, SessionSender& sender, MembershipHubOptions options = {});
  ~MembershipHub();
  MembershipHub(const MembershipHub&) = delete;
  MembershipHub& operator=(const MembershipHub&) = delete;

  void on_open(SessionId session, const SessionPeer& peer) override;
  void on_frame(SessionId session, std::string frame) override;
  void on_close(SessionId session) override;

  // From now on a JOIN ends its session without an answer: the node takes it for a server that is not up yet, and dials
  // again.
  void turn_newcomers_away();
  // The server goes away: turns newcomers away, and ends every session with the job's verdict where the job does not
  // wait for the server to come back, else with the reason.
  void say_farewell(const std::string& reason);
  std::size_t sessions() const;
  std::size_t jobs() const;
  // Called when all nodes of a round are ready, before any of them hears that it starts: no worker runs anywhere.
  void on_round_start(std::function<void(const std::string& run_id, std::int64_t generation)> listener);
  // Called each time a session has ended.
  void on_session_end(std::function<void()> listener);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
