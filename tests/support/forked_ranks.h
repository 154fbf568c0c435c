#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/deadline.h"
#include "common/unique_fd.h"
#include "rendezvous/store/store_server_thread.h"

namespace ddprun::testing {

// Ranks as real processes that a test may kill or freeze, and a store server for them in the test's process. It forks,
// so the test must have no threads. The destructor kills and reaps the remaining processes.
class ForkedRanks {
 public:
  // Runs in the child. result() returns its return value, or what() of the exception that it throws.
  using Body = std::function<std::string(int rank, std::uint16_t store_port)>;

  ForkedRanks(int size, const Body& body);
  ~ForkedRanks();

  pid_t pid(int rank) const { return children_[static_cast<std::size_t>(rank)].pid; }
  void signal(int rank, int number);
  // Waits for the rank's end. Returns empty text when it was killed. Throws when the deadline passes first.
  std::string result(int rank, Deadline deadline);

  std::uint16_t store_port() const { return server_->port(); }
  void stop_store() { server_.reset(); }

 private:
  struct Child {
    pid_t pid = -1;
    UniqueFd port;    // to the child: the store's port
    UniqueFd report;  // from the child: its result
  };
  std::vector<Child> children_;
  std::unique_ptr<StoreServerThread> server_;
};

}  // namespace ddprun::testing
