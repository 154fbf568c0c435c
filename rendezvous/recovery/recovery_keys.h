#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The keys by which workers and their agent communicate through the workers' store, so that a worker that dies can be
// replaced while the others keep their processes. Workers announce that they can recover; the agent decides the members
// of each generation of the process group. Only names and texts: pure functions.
namespace ddprun {

// DDPRUN_RECOVERY: set by an agent that replaces single workers, to the first generation of the process group that the
// worker is a member of: 0, or the one in which a replacement, or a worker of a node that has come, joins.
inline constexpr std::string_view recovery_variable = "DDPRUN_RECOVERY";

// A part of the names of the keys by which workers report to their agent, able() and lost(), and of no others.
inline constexpr std::string_view report_part = "/recovery/report/";

// The values of able() keys: the worker cannot recover any more; it can; it can, and has got the state of the training
// from others, which it joined later.
inline constexpr std::string_view unable_value = "0", able_value = "1", got_state_value = "2";

// The keys in the store of a round's workers. round is its generation, as in TORCHELASTIC_RESTART_COUNT.
struct RecoveryKeys {
  std::int64_t round = 0;

  // Whether the worker of this name can recover. One that joins later can before it says so: it says so once it is
  // ready to join.
  std::string able(std::string_view member) const;
  // Set by the members of a group that has failed since this one froze or was cut off, to what they saw of it: its
  // process may still run.
  std::string lost(std::string_view member) const;
  // The members of a generation, by rank: member_list(); none if all workers are being stopped instead, or have to
  // leave this store. It is set once, and after newest() and leaving().
  std::string members(std::uint64_t generation) const;
  std::string newest() const;  // the generation that was decided last, as a decimal number
  // The members that leave the job in order, with the node that serves this store: member_list(). All others get the
  // members of the next generation from another store.
  std::string leaving() const;
  std::string over() const;  // set once a worker is done: nobody joins any more
  // Set to the present generation once its rank 0 offers the state of the training to those that join in that later
  // one.
  std::string state_offer(std::uint64_t joined_in) const;
  // Those of one node that get the state from rank 0 of a generation: member_list(), set once. number: from 0 on.
  std::string state_request(std::uint64_t generation, std::size_t number) const;
  // The prefix of the keys of all generations' groups.
  std::string groups() const;
};

// The name of a worker among the members: "2.0" for rank 2 from the start, "2.5" for one that joins in generation 5.
std::string member_name(int rank, std::uint64_t joined_in);
// Returns whether the worker of this name was not there from the start.
bool joins_later(std::string_view member);
// The text of a list, with a space between the names, and its inverse.
std::string member_list(const std::vector<std::string>& members);
std::vector<std::string> parse_member_list(std::string_view text);
// Returns the number of a generation that the store holds. Throws Errc::protocol.
std::uint64_t parse_generation(std::string_view text);

}  // namespace ddprun
