#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "ddprun/launcher/chaos/fault_schedule.h"
#include "ddprun/launcher/chaos/link_cut.h"

namespace ddprun {

// A worker of this node that runs.
struct FaultTarget {
  int local_rank = 0;
  pid_t pid = 0;
};

// Injects the faults of a plan into this node while the agent runs: into its workers, and its network links. A fault
// that is due while no worker runs waits for the next one.
//
// Ownership: the loop outlives it; what it has frozen it lets run again in the destructor, and links that are cut work
// again then. Threads: single-threaded on the loop. Errors: a fault that cannot be injected is a warning.
class FaultInjector {
 public:
  struct Workers {
    std::function<std::vector<FaultTarget>()> running;
    // Sends a worker a signal. Returns why it was not sent; empty if it was.
    std::function<std::string(int local_rank, int signal_number)> send;
  };

  FaultInjector(boost::asio::io_context& loop, const FaultPlan& plan, int node, Workers workers);
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

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
  void send(const FaultTarget& target, int signal_number);
  void let_run(const FaultTarget& target);

  boost::asio::steady_timer timer_;
  FaultSchedule schedule_;
  const Workers workers_;
  std::vector<Freeze> freezes_;
  std::optional<Cut> cut_;  // nullopt: the links work
};

}  // namespace ddprun
