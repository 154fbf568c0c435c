#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "rendezvous/store/store.h"
#include "worker/comm/comm_config.h"

namespace ddprun {

namespace comm {
struct PreviousGroup;
struct ReadyStores;
}  // namespace comm

// One rank's options for forming a process group: its rank, the store, the settings. size is the same at all ranks.
struct GroupOptions {
  int rank = 0;
  int size = 1;
  // Makes a new client of the job's store, with a connection of its own. It is called on the thread that forms the
  // group, or a subgroup of it, and, in an auto group, on that of the first collective on device memory.
  std::function<std::shared_ptr<Store>()> connect_store;
  std::string prefix = "group/0/";  // the beginning of the group's keys in the store, unique to this group
  CommConfig config{};
  std::optional<int> store_host{};  // the rank whose process serves the store, if one does
  bool beside_store = false;        // true if the store is on this process's host: other hosts lose both together
  std::stop_token stop{};           // aborts the group once requested, from any thread, also while it forms
  std::stop_token give_up{};        // does what stop does, but is ignored after the group has formed
  // The things that a group before in this process has left for this one; null: none. An ElasticGroup sets it for the
  // groups that it forms, and passes on the segments that it got itself.
  std::shared_ptr<comm::PreviousGroup> previous_group{};
  std::shared_ptr<comm::ReadyStores> ready_stores{};  // set by an ElasticGroup
};

namespace comm {
// Throws Errc::usage naming a value that no group can have.
void check(const GroupOptions& options);
// The longest time that a call to the store may take: freeze_bound, since its host may be frozen as a rank may. A store
// on this host that no rank serves gets ten times that: the kernel reports its end, so that its silence shows a busy
// machine.
std::chrono::milliseconds store_timeout_of(const GroupOptions& options);
}  // namespace comm

}  // namespace ddprun
