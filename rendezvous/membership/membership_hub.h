#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/membership/served_job.h"
#include "rendezvous/store/session_hub.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct MembershipHubOptions {
  ServedJobOptions job;
  std::size_t max_jobs = 4096;
};

// A hub calls these functions for jobs in which another server can be elected; each may be unset.
struct SuccessionListener {
  // The node's session has ended: its process may have ended too, which node_ended() tells the hub.
  std::function<void(const std::string& run_id, const std::string& node)> node_lost;
  // The server may not decide any more; its sessions end.
  std::function<void(const std::string& run_id)> deposed;
};

// The session handler of a rendezvous server: its jobs by run id (ServedJob), to which it passes what their nodes send,
// and clients that are of no job. Once a job has ended, a new job may use its run id; the old one is deleted when its
// sessions have closed.
// Ownership: must outlive the server's use of it (StoreServer::set_session_hub); the loop and sender must outlive it.
// Threads: the server's event loop only.
// Errors: on_frame throws Errc::protocol, upon which the server closes that session.
class MembershipHub final : public SessionHub {
 public:
  MembershipHub(boost::asio::io_context& loop, SessionSender& sender, MembershipHubOptions options = {});
  ~MembershipHub();
  MembershipHub(const MembershipHub&) = delete;
  MembershipHub& operator=(const MembershipHub&) = delete;

  void on_open(SessionId session, const SessionPeer& peer) override;
  void on_frame(SessionId session, std::string frame) override;
  void on_close(SessionId session) override;
  // Recognises agents of another rendezvous by the keys that they write (incompatible_agent.h). If they use the run id
  // of a c10d job, both sides are refused.
  void on_key(SessionId connection, const std::string& peer_address, std::string_view key,
              std::string_view value) override;

  std::string refusal_of(std::string_view frame_head) override;

  // From now on a session whose JOIN would begin a job is closed without an answer, so that the node redials.
  void refuse_new_jobs();
  // The server shuts down: refuses new sessions, and ends every session, with the job result if the job cannot wait for
  // a new server, otherwise with the reason.
  void announce_shutdown(const std::string& reason);
  // Open sessions, and connections of refused agents that have not closed yet.
  std::size_t sessions() const;
  std::size_t jobs() const;
  // The run ids of the jobs that have not ended.
  std::vector<std::string> run_ids() const;
  // The listener runs when all nodes of a round are ready and before any of them is notified of the start: no worker is
  // running.
  void on_round_start(std::function<void(const std::string& run_id, std::int64_t generation)> listener);
  // This server has been elected for the job. It takes the sessions of its nodes, and decides once it has the support
  // of a majority.
  void serve_elected(const JobPolicy& policy, const ServerName& self, const Electorate& electorate);
  // Returns whether the server has been elected for the job and may decide.
  bool decides(const std::string& run_id) const;
  // Returns the same, also while it lacks the support of nodes and may get it again.
  bool serves(const std::string& run_id) const;
  bool has_session(const std::string& run_id, const std::string& node) const;
  // The node's process has ended.
  void node_ended(const std::string& run_id, const std::string& node);
  // The node has sent a message to the node of the elected server here since the job lost its server.
  void node_lives(const std::string& run_id, const std::string& node);
  void on_succession(SuccessionListener listener);
  // The listener runs each time a session has ended.
  void on_session_end(std::function<void()> listener);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
