#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/timer.h"
#include "launcher/chaos/fault_schedule.h"
#include "launcher/chaos/link_cut.h"

namespace ddprun {

// A worker of this node that runs.
struct FaultTarget {
  int local_rank = 0;
  pid_t pid = 0;
};

// Injects the faults of a plan into this node while the agent runs: into its workers, its network links, and its
// membership of the job. A fault that is due while no worker runs waits for the next one; a leave that is not granted
// is requested again until it is.
//
// Ownership: the loop outlives it; what it has frozen it lets run again in the destructor, and links that are cut work
// again then. Threads: single-threaded on the loop. Errors: a fault that cannot be injected is a warning.
class FaultInjector {
 public:
  struct Node {
    std::function<std::vector<FaultTarget>()> running;  // the workers
    // Sends a worker a signal. Returns why it was not sent; empty if it was.
    std::function<std::string(int local_rank, int signal_number)> send;
    // Requests that the node leaves the job, or joins it again. left(), stays() and joined() tell what comes of it.
    std::function<void()> leave;
    std::function<void()> join;
  };

  FaultInjector(boost::asio::io_context& loop, const FaultPlan& plan, int node, Node callbacks);
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  // The node has left the job.
  void left();
  // The node may not leave now, for this reason.
  void stays(const std::string& why);
  // The node's workers have been started: it takes part in the job, whether it had left before or not.
  void joined();

 private:
  struct Freeze {
    FaultTarget target;
    FaultSchedule::Time end;
  };
  struct Cut {
    LinkCut links;
    FaultSchedule::Time end;
  };

  void wait();
  void act();
  void end_faults(FaultSchedule::Time now);
  void inject(const Fault& fault, const FaultTarget& target);
  void cut_links(const Fault& fault);
  void request_change(FaultSchedule::Time now);
  void send(const FaultTarget& target, int signal_number);
  void let_run(const FaultTarget& target);

  Timer timer_;
  FaultSchedule schedule_;
  const Node node_;
  std::vector<Freeze> freezes_;
  std::optional<Cut> cut_;  // nullopt: the links work
  // The leave or the join that is requested until it has happened: the server may refuse a leave for now, and a node
  // cannot join before its workers have stopped.
  struct Change {
    FaultKind kind = FaultKind::leave;
    FaultSchedule::Time request{};  // the time of the next request
    bool refusal_logged = false;
  };
  std::optional<Change> change_;
};

}  // namespace ddprun
