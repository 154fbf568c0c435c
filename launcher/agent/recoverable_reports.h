#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace ddprun {

// Whether all workers of a round can recover in their processes.
struct Recoverable {
  std::int64_t generation = 0;
  bool able = false;

  bool operator==(const Recoverable&) const = default;
};

// The reports of group rank 0 whether all workers of its round can recover (Rendezvous::report_recoverable()). All
// nodes of the round learn from them whether its workers may run on without the rendezvous, and the server whether they
// may in a round of other nodes.
//
// Threads: one at a time. Errors: none.
class RecoverableReports {
 public:
  struct Handlers {
    std::function<std::optional<Recoverable>()> read;  // returns none if this node does not report it
    std::function<void(const Recoverable&)> send;
  };

  explicit RecoverableReports(Handlers handlers) : handlers_(std::move(handlers)) {}

  // Sends what has changed since the last report: to be called whenever a worker has announced something.
  void report();
  // Sends it in any case: a server that was started while the workers ran knows nothing of them.
  void report_again();

 private:
  void send(const Recoverable& now);

  const Handlers handlers_;
  std::optional<Recoverable> sent_;  // by the last report
};

}  // namespace ddprun
