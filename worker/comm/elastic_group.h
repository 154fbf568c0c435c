#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/membership_change.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun {

namespace comm {
class Agreement;
class DepartureNotice;
struct Agreed;
struct PeerList;
}  // namespace comm

// One process's membership of a group that is formed anew as processes go and come, without any of them starting over.
//
//   ElasticGroup elastic("auto", options, "a");
//   elastic.reconfigure(0, {"a", "b", "c"});   // and so do b and c
//   ...                                        // c dies: the group's operations fail
//   elastic.survivors();                       // a and b
//   elastic.reconfigure(1, {"a", "b", "d"});   // and so do b and d
//   elastic.change();                          // c is gone, and why; d is a newcomer
//
// Who is a member of the next generation is for the program, or its launcher, to say; that all of them say the same,
// and are there, is found out here, before the present group is given up.
class ElasticGroup {
 public:
  // backend: a row of comm/forming/backends.cc. base: of every generation's group; its prefix is that of all of them,
  // alike at every member, its timeout also bounds each agreement; rank and size are not read. self: this process's
  // name among the members, its own through all generations. Throws Errc::usage for a back end that there is not,
  // and for numbers that no group can have.
  ElasticGroup(std::string backend, GroupOptions base, std::string self);
  ~ElasticGroup();

  // Forms the group of a generation, higher than any this process has been in; a member's position in the list is its
  // rank. Every member calls this with the same list. Two phases, agreed upon through the store:
  //
  // Until all have come and agreed, a failure leaves the present group as it is, and the call may be repeated, with the
  // same or another list: Errc::aborted names who did not come, was lost, proposes other members, or asks for another
  // back end or other options that have to be the same, alike at all.
  // Errc::usage: the generation has been formed before, or the list is wrong.
  // Once agreed, the present group ends, as one does that is destroyed, and the next one comes together. Should that
  // fail (a member dies just then) its error comes out, and a further generation is the way on.
  //
  // One at a time. A reference to the group before must not be used any more.
  ProcessGroup& reconfigure(std::uint64_t generation, const std::vector<std::string>& members);

  // What is known now of the generation that was agreed upon last: who of its members is gone, by rank, as they died,
  // left (their ElasticGroup was destroyed), or are named as frozen or cut off by the failure of its group, which may
  // be this process; and the names of the others, in their order. Of whom a failure names it is known when an operation
  // has failed with it; several deaths at one moment may show one after the other, and a list that has one too many is
  // refused to all as soon as that shows; a name that was told to be lost, to every member, may be another process's in
  // the next list. survivors() may lack this process: then the others go on without it.
  // Nobody before the first reconfigure(). These two and change() may be called from any thread, ask the store, and
  // throw what that throws.
  std::vector<ElasticMember> lost();
  std::vector<std::string> survivors();
  // What the last reconfigure() that succeeded changed against the group that this process was in before, which may be
  // some generations back: those that are gone, also as no list has them any more (nobody, for a newcomer). And the
  // newcomers, the same at every member: who was not in the last group that any of them was in, so all in a first one.
  MembershipChange change();

  // Throws Errc::usage where there is none: before the first reconfigure(), and after one that failed once agreed.
  ProcessGroup& group();
  const std::string& self() const { return self_; }

  // From any thread: aborts the group, or a reconfigure() under way, which throws Errc::aborted with the reason.
  void abort(const std::string& reason);

 private:
  comm::Agreed agree(comm::Agreement& agreement, std::stop_token stop);
  std::unique_ptr<ProcessGroup> connect(const GroupOptions& options);
  void expect_not_aborted() const;
  std::shared_ptr<comm::PreviousGroup> end_present(const std::shared_ptr<const comm::PeerList>& next);
  void leave_farewell(const comm::PeerList& peer_list, int rank);
  std::shared_ptr<const comm::PeerList> last_agreed();
  std::vector<ElasticMember> lost_of(const std::shared_ptr<const comm::PeerList>& peer_list);
  template <class Question>
  auto ask(Question question);  // the store
  std::shared_ptr<Store> store();
  void forget_store();

  const std::string backend_;
  const GroupOptions base_;
  const std::string self_;
  std::unique_ptr<comm::DepartureNotice> linger_timeout_;  // used by reconfigure() alone; said once the group is gone

  std::mutex mutex_;              // guards what follows
  std::shared_ptr<Store> store_;  // for the agreements; made when first used, and again after it failed
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<const comm::PeerList> agreed_;    // the generation agreed upon last
  std::shared_ptr<const comm::PeerList> active_;    // the last whose group came together here
  std::shared_ptr<const comm::PeerList> previous_;  // the last before that
  std::set<std::string> known_lost_;                // of those agreed upon last, as the program has been told
  std::uint64_t next_ = 0;                          // the least generation that may follow
  std::stop_source forming_;
  std::optional<std::string> abort_reason_;  // since the last reconfigure() began
};

}  // namespace ddprun
