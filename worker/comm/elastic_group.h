#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "worker/comm/group_options.h"
#include "worker/comm/membership_change.h"
#include "worker/comm/process_group.h"

namespace ddprun {

namespace comm {
class Agreement;
class DepartureNotice;
class ExitFutex;
class SegmentReserve;
struct Agreed;
struct PeerList;
}  // namespace comm

// One process's membership of a group that is formed again as processes join and leave, without restarting any of them.
//
//   ElasticGroup elastic("auto", options, "a");
//   elastic.reconfigure(0, {"a", "b", "c"});   // b and c call the same
//   ...                                        // c dies: the group's operations fail
//   elastic.survivors();                       // a and b
//   elastic.reconfigure(1, {"a", "b", "d"});   // b and d call the same
//   elastic.change();                          // c is gone, and why; d is a newcomer
//
// The program, or its launcher, decides who is a member of the next generation. This class makes sure that all members
// decided the same, and are there, before the current group ends.
//
// Ownership: owns the current group and its own connections to the store. Destroying it leaves the group, and tells the
// other members.
// Threads: one thread at a time calls reconfigure() and store_moved(); any thread may call the others.
// Errors: as each method says; lost(), survivors(), absent() and change() throw what the store throws.
// Units: as in GroupOptions.
class ElasticGroup {
 public:
  // backend: as in InitOptions. base: the options of every generation's group; its prefix is that of all generations,
  // the same at every member; its timeout also bounds each agreement; rank and size are ignored, and of the previous
  // group all but its segments. self: this process's name among the members, unique and the same in all generations.
  // Throws Errc::usage for an unknown back end and for invalid options.
  ElasticGroup(std::string backend, GroupOptions base, std::string self);
  ~ElasticGroup();

  // Forms the group of a generation, which is higher than any that this process has been in. Every member calls this
  // with the same list; a member's position in the list is its rank. The returned reference is valid until the next
  // reconfigure().
  //
  // Until all members have joined and agreed, a failure leaves the current group unchanged, and the call may be
  // repeated with the same or another list. Every member then gets the same Errc::aborted, which names the member that
  // did not join, was lost or proposed other members; or the same Errc::mismatch, which names one with another back end
  // or other options that have to be the same.
  // Errc::usage: the generation has been formed before, or the list is invalid.
  // Once all have agreed, the current group is destroyed and the next one forms. If that fails (a member dies just
  // then), this process is in no group; to recover, form a further generation.
  ProcessGroup& reconfigure(std::uint64_t generation, const std::vector<std::string>& members);

  // lost() returns the members of the last agreed generation that are known to be gone, by rank: they died, left (their
  // ElasticGroup was destroyed), or the group's failure names them as frozen or cut off, which may include this
  // process. survivors() returns the names of the others, in list order. The members that a failure names are known
  // once an operation has failed with it. Of several that die at once, some may be found later: a list that still has
  // one is refused at every member as soon as its death is known. A name that lost() returned, at every member, may
  // belong to another process in the next list. Both are empty before the first reconfigure().
  std::vector<ElasticMember> lost();
  std::vector<ElasticMember> lost(Deadline deadline);
  std::vector<std::string> survivors();
  // Returns the names of the members that had not joined when the last reconfigure() ended; none if it succeeded. Those
  // that were lost are among them.
  std::vector<std::string> absent(Deadline deadline);
  // Returns what the last successful reconfigure() changed against the group that this process was in before, possibly
  // some generations earlier: the members that are gone, including those that are merely not in the new list (none, for
  // a newcomer); and the newcomers, the same at every member: those that were not in the last group that any member was
  // in, so all of them in a first group.
  MembershipChange change();

  // The store is another one from now on: groups, agreements and queries that follow connect to it. beside_store: as in
  // GroupOptions. Nothing is asked of the former one, which may be silent; who of its last generation is gone is not
  // known from now on.
  void store_moved(bool beside_store);

  // The current group. Throws Errc::usage before the first reconfigure(), and after one that failed once all had
  // agreed.
  ProcessGroup& group();
  const std::string& self() const { return self_; }

  // Aborts the group, or a reconfigure() in progress, which throws Errc::aborted with the reason.
  void abort(const std::string& reason);
  // Does the same, but only for generations below this one, and for good: a reconfigure() of one that begins later also
  // throws Errc::aborted with the reason. It serves a thread that learns that a newer generation has been decided.
  void abort_before(std::uint64_t generation, const std::string& reason);

 private:
  comm::Agreed agree(comm::Agreement& agreement, std::stop_token stop);
  std::future<void> begin_notice(const comm::PeerList& peer_list, int rank);
  std::unique_ptr<ProcessGroup> connect(const GroupOptions& options);
  void begin(std::uint64_t generation);
  void expect_not_aborted() const;
  std::shared_ptr<comm::PreviousGroup> end_current(const std::shared_ptr<const comm::PeerList>& next);
  void renew_departure_notice(const comm::PeerList& peer_list, int rank);
  std::shared_ptr<const comm::PeerList> last_agreed();
  std::vector<ElasticMember> lost_of(const std::shared_ptr<const comm::PeerList>& peer_list, Deadline deadline);
  template <class Query>
  auto query_store(Query query);
  std::shared_ptr<Store> store();
  void forget_store();

  const std::string backend_;
  GroupOptions base_;
  const std::string self_;
  const std::shared_ptr<comm::SegmentReserve> segments_;
  const std::shared_ptr<comm::ExitFutex> exit_futex_;        // of all groups, so that none has to make it
  std::unique_ptr<comm::DepartureNotice> departure_notice_;  // used by reconfigure(); destroyed after the group

  std::mutex mutex_;              // guards the members below
  std::shared_ptr<Store> store_;  // for agreements and queries; connected when first used, and again after it failed
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<const comm::PeerList> agreed_;            // the last generation that was agreed on
  std::shared_ptr<const comm::PeerList> active_;            // the last whose group formed in this process
  std::shared_ptr<const comm::PeerList> previous_;          // the last before active_
  std::shared_ptr<const comm::PeerList> not_agreed_;        // of the last reconfigure(), if it ended before all agreed
  std::shared_ptr<const comm::PeerList> agreed_elsewhere_;  // agreed_ at the last store_moved()
  std::set<std::string> known_lost_;                        // members of agreed_ that lost() has returned
  std::uint64_t least_generation_ = 0;                      // the least that reconfigure() accepts
  std::uint64_t newest_generation_ = 0;                     // the one that reconfigure() was last called for
  std::stop_source stop_reconfigure_;
  std::optional<std::string> abort_reason_;  // the reason given since the last reconfigure() began
  std::uint64_t superseded_below_ = 0;       // generations that abort_before() has ended
  std::string superseded_reason_;
};

}  // namespace ddprun
