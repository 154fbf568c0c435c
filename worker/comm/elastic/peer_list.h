#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/store/store.h"
#include "worker/comm/health/group_failure.h"
#include "worker/comm/membership_change.h"

// The members of a generation, and their state in the store. Functions that take a store throw what it throws, and may
// be called by any thread.
namespace ddprun::comm {

// The members that agreed on a generation, and the prefixes of their keys in the store. A plain value.
struct PeerList {
  std::uint64_t generation = 0;
  std::string attempt;               // prefix of the keys of their agreement
  std::string group;                 // prefix of the keys of their group
  std::vector<std::string> members;  // by rank

  std::string joined_key(int rank) const { return attempt + "joined/" + std::to_string(rank); }
  std::string gone_key(int rank) const { return group + "gone/" + std::to_string(rank); }
  const std::string& name_of(int rank) const { return members[static_cast<std::size_t>(rank)]; }
  std::optional<int> rank_of(const std::string& name) const;
};

// Sets a last will if the store has them. A store without (PyTorch's own) leaves detection to the group's heartbeats.
void set_last_will(Store& store, const std::string& key, const std::string& text, Deadline deadline);
// Sets the failure of the group whose keys have this prefix, unless one is set already: the ranks that form it learn
// why one of them does not join.
void report_failure(Store& store, const std::string& group, const GroupFailure& failure, Deadline deadline) noexcept;

// The record that a member publishes when it joins an agreement.
struct JoinRecord {
  std::optional<std::uint64_t> last_generation;  // the last one whose group it was in
  std::string process;                           // "pid 42 on host b"
  friend bool operator==(const JoinRecord&, const JoinRecord&) = default;
};
std::string encode(const JoinRecord& record);
JoinRecord decode_join_record(std::string_view text);

// The calls that look for signs that a member is gone, and whether their results, in the same order, have one.
std::vector<StoreCall> calls_of_gone(const PeerList& peer_list, int rank);
bool tell_of_gone(std::span<const std::optional<std::string>> results, int rank);
// Returns that member, if it died, left, or is among the lost ranks of its group's failure.
std::optional<ElasticMember> find_gone(Store& store, const PeerList& peer_list, int rank, Deadline deadline);
// Returns all such members, by rank.
std::vector<ElasticMember> find_lost(Store& store, const PeerList& peer_list, Deadline deadline);

// before: the generation that this process was in; if null, no member is known to be gone. The newcomers are the same
// at every member: those that were not in the last generation that any member was in.
MembershipChange find_change(Store& store, const PeerList* before, const PeerList& now, Deadline deadline);

// Tells the other members of a generation when this one leaves it, by its destructor, or dies, by a last will.
//
// Ownership: owns its connection to the store. Threads: one at a time. Errors: move_to() throws what the store throws.
class DepartureNotice {
 public:
  explicit DepartureNotice(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  ~DepartureNotice();
  DepartureNotice(const DepartureNotice&) = delete;
  DepartureNotice& operator=(const DepartureNotice&) = delete;

  // From now on the notice is for only this generation.
  void move_to(const PeerList& peer_list, int rank, Deadline deadline);
  // The members use another store: the destructor tells nobody.
  void drop() { key_.clear(); }

 private:
  const std::shared_ptr<Store> store_;
  std::string key_;  // empty if it is for no generation yet
};

}  // namespace ddprun::comm
