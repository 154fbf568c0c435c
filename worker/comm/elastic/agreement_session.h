#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "rendezvous/store/store.h"
#include "worker/comm/elastic/agreement.h"
#include "worker/comm/elastic/peer_list.h"
#include "worker/comm/health/group_failure.h"

// Executes an agreement's requests in the store.
namespace ddprun::comm {

// A last will for a group that has not formed yet: from when a member has joined the agreement until the group's
// monitor has set its own. If the member dies in between, the others' attempt to form the group fails at once. The keys
// are those of one attempt's group, so nothing remains of a cancelled attempt. The monitor may take over the
// connection.
//
// Ownership: owns its connection to the store. Threads: one at a time. Errors: none.
class DeferredLastWill {
 public:
  DeferredLastWill(std::shared_ptr<Store> store, const Agreement& agreement, const std::string& group);
  ~DeferredLastWill();
  DeferredLastWill(const DeferredLastWill&) = delete;
  DeferredLastWill& operator=(const DeferredLastWill&) = delete;

  // The connection, and the call by which it leaves the last will.
  const std::shared_ptr<Store>& store() const { return store_; }
  StoreCall call() const;
  // The group's monitor has the connection and the last will from now on.
  void handed_over() { handed_over_ = true; }
  // Makes cause the group's failure unless one is set: this member cannot form the group that it agreed on.
  void report(const std::exception& cause) noexcept;

 private:
  const std::shared_ptr<Store> store_;
  const std::string group_;
  const std::string who_;
  const GroupFailure loss_;  // what the last will says
  bool handed_over_ = false;
};

struct AgreementOptions {
  std::shared_ptr<Store> store;  // the session sets its last will, which says nothing more once there is a decision
  std::function<std::shared_ptr<Store>()> connect;
  std::string prefix;  // the beginning of the keys of all generations
  std::chrono::milliseconds timeout;
  std::stop_token stop;
  std::optional<std::uint64_t> last_generation;  // the last one whose group formed in this process
  std::shared_ptr<const PeerList> last_agreed;   // the last one that was agreed on, if any
  std::set<std::string> known_lost;              // members of last_agreed: other processes may have their names now
};

struct Agreed {
  PeerList peer_list;
  std::unique_ptr<DeferredLastWill> last_will;
};

// The list of an agreement's current attempt. prefix: as in AgreementOptions.
PeerList peer_list_of(const Agreement& agreement, const std::string& prefix);

// Runs the agreement to its end, in the calling thread: at most options.timeout, and less once options.stop is
// requested, which any thread may do. Throws its failure, and what the store throws.
Agreed execute(Agreement& agreement, AgreementOptions options);

}  // namespace ddprun::comm
