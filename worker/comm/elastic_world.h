#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "common/deadline.h"
#include "rendezvous/store/store.h"
#include "worker/comm/elastic_group.h"
#include "worker/comm/init.h"

namespace ddprun {

class Credentials;
class StoreNoticeReader;
namespace comm {
class DialAhead;
}

// This process's membership of a job whose process group is formed again while it runs, and whose store a launcher
// serves: init_process_group() for an ElasticGroup.
//
// The launcher may serve the store elsewhere once its node is lost (store_notice.h): an empty one, so that all members
// form a group of a higher generation by it. Groups of lower ones are aborted then, since the former store may not say
// which of their members are gone.
//
// Ownership: owns the group. Threads: those of ElasticGroup; any thread may call the others.
// Errors: the constructor throws Errc::usage for options that no group can have, and for a job whose rank 0 serves the
// store, which then ends with that process.
class ElasticWorld {
 public:
  // prefix: the beginning of the keys of all generations. self: this process's name among the members.
  ElasticWorld(const InitOptions& options, const std::string& prefix, const std::string& self);
  ~ElasticWorld();

  ElasticGroup& group() { return *group_; }
  // Makes a new client of the job's store, with a connection of its own, to where the store is now. Throws what
  // TcpStore throws. stop: as in TcpStoreOptions.
  std::shared_ptr<Store> connect(Deadline bound = Deadline::never(), const std::stop_token& stop = {}) const;
  // Forms a group of some processes of the job beside group(). This ends within group_bound, and so do its operations.
  // stop: as in GroupOptions.
  static constexpr std::chrono::seconds group_bound{20};
  std::unique_ptr<ProcessGroup> form_beside(const std::string& prefix, int rank, int size,
                                            const std::stop_token& stop) const;
  // Begins to dial so many connections for the group, in the background: it takes these, while the store has not moved,
  // before it connects. For a moment at which it will soon be told to form.
  void dial_ahead(int connections);
  // Returns whether the store is on this host now.
  bool is_beside_store() const;
  // Returns whether the launcher tells where the store is.
  bool store_may_move() const { return notice_ != nullptr; }
  // Returns how often the store has moved.
  std::uint32_t store_moves() const;
  // Tells the launcher that this process has no group and waits for the members of the next one.
  void say_waiting() const;
  // Waits until the store has moved more often, or the deadline has passed, and says so meanwhile. REQUIRES:
  // store_may_move()
  void await_store_move(std::uint32_t moves, Deadline deadline) const;

 private:
  WorkerEnv env_now() const;
  std::shared_ptr<Store> take_or_connect();
  std::shared_ptr<Store> dial(Deadline deadline, const std::stop_token& stop) const;
  void abort_at_moves(std::uint32_t moves, const std::stop_token& stop);

  const WorkerEnv env_;
  const CommConfig config_;
  const std::string backend_;
  const std::unique_ptr<const StoreNoticeReader> notice_;  // null: the store stays where it is
  std::atomic<std::uint32_t> moves_at_dial_ = 0;           // store_moves() as of dial_ahead()
  const std::unique_ptr<comm::DialAhead> dialled_ahead_;
  const std::unique_ptr<ElasticGroup> group_;
  std::jthread move_watch_;  // the last member, since it uses the others
};

}  // namespace ddprun
