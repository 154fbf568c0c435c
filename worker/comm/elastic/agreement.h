#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ddprun/common/error.h"

namespace ddprun::comm {

// How the members of a next generation agree on it before anybody gives the present one up: the store's answers in, the
// next request out. No I/O; agreement_session.cc carries the requests out.
//
// The first to come proposes its list and its terms (terms.h), whoever has the same counts itself in (phase one), and
// the last to be counted commits (phase two). Whoever gives up - its deadline has passed, the proposals differ, it dies
// - cancels instead.
// The decision is a key that is set once, so that either all read "commit" or all read the same reason. A cancelled
// attempt may be followed by another one; a committed generation is used up.
class Agreement {
 public:
  // Requests. Each is answered by the event named.
  struct Look {};   // is there a decision already?                                              -> looked()
  struct Propose {  // set the attempt's proposal, unless there is one                           -> proposed()
    std::string text;
  };
  struct CountIn {  // leave a will for the decision, show one has come, count                   -> counted(), lost()
    std::string will;
  };
  struct Decide {  // set the decision, unless there is one                                      -> decided()
    std::string text;
  };
  struct Await {
  };  // the decision, or the deadline                      -> decided(), deadline_passed(), given_up(), lost()
  // Ends.
  struct Committed {};
  struct Failed {
    Error error;
  };
  using Request = std::variant<Look, Propose, CountIn, Decide, Await, Committed, Failed>;

  // identity: of this process, for the others: "pid 42 on host b". Throws Errc::usage for a list that is empty, names
  // one twice, or lacks self; for an empty name or one with a line's end.
  Agreement(std::uint64_t generation, std::vector<std::string> members, std::string self, std::string identity,
            std::string terms);

  std::uint64_t generation() const { return generation_; }
  const std::vector<std::string>& members() const { return members_; }
  const std::string& identity() const { return identity_; }
  int position() const { return position_; }          // of self: its new rank
  std::uint64_t attempt() const { return attempt_; }  // which of the generation's the requests mean

  Request begin() const { return Look{}; }
  Request looked(const std::optional<std::string>& decision);
  Request proposed(std::string_view text) const;  // the proposal that counts
  Request counted(std::int64_t count) const;      // how many have come, this one included
  Request decided(std::string_view text) const;   // the decision that counts
  // A member that has not come, and will not.
  Request lost(const std::string& member, const std::string& process, const std::string& cause) const;
  Request given_up() const;  // by this process, for reasons of its own
  Request deadline_passed(const std::vector<std::string>& missing, double seconds) const;

 private:
  std::string who() const;

  const std::uint64_t generation_;
  const std::vector<std::string> members_;
  const std::string self_;
  const std::string identity_;
  const std::string terms_;
  int position_ = 0;
  std::uint64_t attempt_ = 0;
};

}  // namespace ddprun::comm
