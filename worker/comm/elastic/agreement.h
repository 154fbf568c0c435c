#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/error.h"
#include "worker/comm/bootstrap/group_config.h"

namespace ddprun::comm {

// The two-phase commit by which the members of a next generation agree on it while they still have the current group:
// answers of the store in, the next request out. No I/O; agreement_session.cc executes the requests.
//
// The first member proposes its list and its configuration. Each member with the same ones joins (phase one), and the
// last to join commits (phase two). A member whose deadline passed, whose proposal differs, or that dies, cancels
// instead. The decision is a key that is set once, so all members read "commit", or all read the same reason. After a
// cancelled attempt another one may follow; a committed generation cannot be formed again.
//
// A value. Threads: not thread-safe. Errors: the constructor's; those of an agreement are results, Failed.
class Agreement {
 public:
  // Requests; the event that answers each is named.
  struct Propose {  // read the decision if there is one, set the proposal unless there is one  -> proposed()
    std::string text;
    std::string last_will;  // for the decision: to be left before this member joins
  };
  struct Join {};  // register, count                                                           -> counted(), lost()
  struct Decide {  // set the decision unless there is one                                       -> decided()
    std::string text;
  };
  struct Await {
  };  // wait for the decision                                  -> decided(), deadline_passed(), aborted(), lost()
  // Final results.
  struct Committed {};
  struct Failed {
    Error error;
  };
  using Request = std::variant<Propose, Join, Decide, Await, Committed, Failed>;

  // self: this process's name. identity: this process's, such as "pid 42 on host b". Throws Errc::usage for a list that
  // is empty, repeats a name or lacks self, and for a name that is empty or has a line break.
  Agreement(std::uint64_t generation, std::vector<std::string> members, std::string self, std::string identity,
            GroupConfig config);

  std::uint64_t generation() const { return generation_; }
  const std::vector<std::string>& members() const { return members_; }
  const std::string& identity() const { return identity_; }
  int position() const { return position_; }          // self's place in the list: its new rank
  std::uint64_t attempt() const { return attempt_; }  // the generation's attempt that the requests belong to

  Request begin() const;
  // decision: that of the attempt, if there is one; text: the proposal that was set.
  Request proposed(const std::optional<std::string>& decision, std::string_view text);
  Request counted(std::int64_t count) const;     // count: members that have joined, including this one
  Request decided(std::string_view text) const;  // text: the decision that was set
  // A member that has not joined died or left.
  Request lost(const std::string& member, const std::string& process, const std::string& cause) const;
  Request aborted() const;  // by this process's program
  Request deadline_passed(const std::vector<std::string>& missing, double seconds) const;

 private:
  std::string who() const;

  const std::uint64_t generation_;
  const std::vector<std::string> members_;
  const std::string self_;
  const std::string identity_;
  const GroupConfig config_;
  int position_ = 0;
  std::uint64_t attempt_ = 0;
};

}  // namespace ddprun::comm
