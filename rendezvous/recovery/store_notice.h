#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/deadline.h"
#include "common/host_port.h"
#include "common/unique_fd.h"
#include "rendezvous/progress/training_memory.h"

// Memory in which an agent tells its workers where their store is, after its node was lost and another one serves it,
// and the workers tell it that they wait for what it decides: a memfd of one page that the workers map. So both learn
// of it while nothing else connects a worker to its agent.
namespace ddprun {

// DDPRUN_STORE_NOTICE: where a worker opens it, StoreNotice::address().
inline constexpr std::string_view store_notice_variable = "DDPRUN_STORE_NOTICE";

struct StorePlace {
  std::uint32_t moves = 0;       // the number of set_place() calls
  HostPort place;                // without a host: where the environment says
  std::uint64_t generation = 0;  // groups of lower generations are aborted: they learn of the move by nothing else
};

// The agent's side. Threads: one at a time. The memory exists until the agent and all workers have ended.
class StoreNotice {
 public:
  // Throws Errc::io.
  StoreNotice();

  std::string address() const;  // "/proc/<process>/fd/<descriptor>"
  // The store is there from now on, and process groups of generations below this one are aborted. An empty host: where
  // the environment of the next workers says.
  void set_place(const std::string& host, std::uint16_t port, std::uint64_t generation);
  // Returns whether a worker has said so within this time that it waits.
  bool is_awaited(std::chrono::milliseconds within) const;

 private:
  UniqueFd file_;
  SharedPages page_;
};

// A worker's side. Threads: any.
class StoreNoticeReader {
 public:
  // Throws Errc::io if it cannot be opened from here, as in a container with a PID namespace of its own.
  explicit StoreNoticeReader(const std::string& address);

  StorePlace read() const;
  // Returns whether the store has moved more often than `moves` by the deadline. wake() may end a wait early.
  bool await_move(std::uint32_t moves, Deadline deadline, const std::stop_token& stop = {}) const;
  void wake() const;
  // This process has lost its process group, and waits for the members of the next one. It says so again and again.
  void say_waiting() const;

 private:
  SharedPages page_;
};

}  // namespace ddprun
