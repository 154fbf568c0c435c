#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/recovery/recovery_keys.h"
#include "rendezvous/store/store.h"
#include "worker/comm/process_group.h"
#include "worker/recovery/plan_watch.h"

namespace ddprun {

// Offers the state of the training to the processes of nodes that are to join, before they do, and forms a group with
// those of each node that ask for it.
//
// Ownership: owns its thread, and the thread's connection to the store. Threads: one at a time; connect and form are
// called in the offer's. Errors: none; without a group the processes get the state when they have joined.
class StateOffer {
 public:
  // Forms a group in which this process has that rank; gives up when it is asked to stop.
  using Form = std::function<std::unique_ptr<ProcessGroup>(const std::string& prefix, int rank, int size,
                                                           const std::stop_token& stop)>;
  // generation: the present one, in which this process is rank 0.
  StateOffer(PlanWatch::Connect connect, Form form, const RecoveryKeys& keys, std::uint64_t generation);
  StateOffer(const StateOffer&) = delete;
  StateOffer& operator=(const StateOffer&) = delete;

  // Returns each group once after it has formed; otherwise null. This process is rank 0 in it.
  std::unique_ptr<ProcessGroup> take();

 private:
  void run(const std::stop_token& stop);
  void form(Store& store, std::size_t number, const std::stop_token& stop);

  const PlanWatch::Connect connect_;
  const Form form_;
  const RecoveryKeys keys_;
  const std::uint64_t generation_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<ProcessGroup>> formed_;  // guarded by mutex_
  std::jthread thread_;                               // the last member, since it uses the others
};

// Asks for the state in the name of the processes of one node, by their names among the members, of which self is one.
// Returns the group in which rank 0 sends it; null if nobody offers it, or the members of that generation are decided,
// when stop is requested.
std::unique_ptr<ProcessGroup> accept_offer(Store& store, const StateOffer::Form& form, const RecoveryKeys& keys,
                                           std::uint64_t joined_in, const std::vector<std::string>& node,
                                           const std::string& self, const std::stop_token& stop);

}  // namespace ddprun
