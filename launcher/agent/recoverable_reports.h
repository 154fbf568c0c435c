#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>

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
// Ownership: the loop outlives it. Threads: single-threaded on the loop. Errors: none.
class RecoverableReports {
 public:
  struct Handlers {
    std::function<std::optional<Recoverable>()> read;  // returns none if this node does not report it
    std::function<void(const Recoverable&)> send;
  };

  RecoverableReports(boost::asio::io_context& loop, Handlers handlers) : timer_(loop), handlers_(std::move(handlers)) {}

  // Sends what has changed since the last report.
  void report();
  // Sends it in any case: a server that was started while the workers ran knows nothing of them.
  void report_again();
  // Does what report() does, again and again until the workers can recover: until then, a change of the nodes restarts
  // all workers.
  void await_able();
  void stop() { timer_.cancel(); }

 private:
  void await_able(std::chrono::milliseconds interval);
  void send(const Recoverable& now);

  boost::asio::steady_timer timer_;
  const Handlers handlers_;
  std::optional<Recoverable> sent_;  // by the last report
};

}  // namespace ddprun
