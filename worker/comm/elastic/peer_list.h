#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/health/diagnosis.h"
#include "ddprun/worker/comm/membership_change.h"

namespace ddprun::comm {

// The members that agreed upon a generation, and where the store keeps what is known of them.
struct PeerList {
  std::uint64_t generation = 0;
  std::string attempt;               // prefix of the keys of their agreement
  std::string group;                 // prefix of the keys of their group
  std::vector<std::string> members;  // by rank

  std::string came_key(int rank) const { return attempt + "came/" + std::to_string(rank); }
  std::string gone_key(int rank) const { return group + "gone/" + std::to_string(rank); }
  const std::string& name_of(int rank) const { return members[static_cast<std::size_t>(rank)]; }
  std::optional<int> rank_of(const std::string& name) const;
};

// A will where the store has them; without (a plain PyTorch store) what the group finds out has to do.
void leave_will(Store& store, const std::string& key, const std::string& text, Deadline deadline);
// Those who form a group, whose keys have this prefix, learn why one of them cannot come, unless they know of a failure
// already.
void tell_failure(Store& store, const std::string& group, const Verdict& failure, Deadline deadline) noexcept;

// What a member says of itself when it comes to an agreement.
struct Arriving {
  std::optional<std::uint64_t> former;  // the last generation that it was in; none: it was in none
  std::string process;
  friend bool operator==(const Arriving&, const Arriving&) = default;
};
std::string encode(const Arriving& arriving);
Arriving decode_arriving(std::string_view text);

// This one, if it is gone: died, left, or is named by the failure of their group.
std::optional<ElasticMember> find_gone(Store& store, const PeerList& peer_list, int rank, Deadline deadline);
// Who of them is gone, by rank.
std::vector<ElasticMember> find_lost(Store& store, const PeerList& peer_list, Deadline deadline);

// before: the generation that this process was in, if it was in one; without it nobody is known to be gone. The
// newcomers are the same whoever asks: those who were not in the last generation that any member was in.
MembershipChange find_change(Store& store, const PeerList* before, const PeerList& now, Deadline deadline);

// Tells those who go on, as long as it lives, when this member's process ends; or that it left.
class DepartureNotice {
 public:
  explicit DepartureNotice(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  ~DepartureNotice();
  DepartureNotice(const DepartureNotice&) = delete;
  DepartureNotice& operator=(const DepartureNotice&) = delete;

  // It is a member of this one now, and of no other.
  void belong_to(const PeerList& peer_list, int rank, Deadline deadline);

 private:
  const std::shared_ptr<Store> store_;
  std::string key_;  // empty: of none yet
};

}  // namespace ddprun::comm
