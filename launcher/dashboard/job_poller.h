#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/timer.h"
#include "launcher/control/group_progress.h"
#include "launcher/dashboard/request_thread.h"
#include "rendezvous/membership/job_status.h"
#include "rendezvous/membership/session_request.h"

namespace ddprun::dashboard {

// Requests the data that an agent does not have itself: the job's status from the rendezvous server, and the process
// groups of the workers from their store. A request blocks, so it is made in a thread; the next one is made two seconds
// after the answer.
//
// Ownership: the loop outlives it; the destructor ends a request that is in progress. Threads: single-threaded on the
// loop, which calls the handlers. Errors: reported through `unheard`; the requests continue.
class JobPoller {
 public:
  struct Spec {
    ServerAddress server;
    std::string run_id;       // empty: the only job of the server
    bool asks_status = true;  // it requests the status of the job
    std::chrono::milliseconds interval{2'000};
  };
  struct Handlers {
    std::function<void(const JobStatus&)> status;
    std::function<void(const std::string& problem)> unheard;  // the server gave no status, or has no such job
    // Returns the job whose process groups are wanted now; nullopt if nobody looks at them.
    std::function<std::optional<JobStatus>()> wanted;
    std::function<void(const std::vector<GroupProgress>&)> groups;
  };

  JobPoller(boost::asio::io_context& loop, Spec spec, Handlers handlers);

 private:
  void ask();
  void ask_status();
  void ask_groups();
  void wait();

  const Spec spec_;
  const Handlers handlers_;
  Timer timer_;
  RequestThread requests_;
};

}  // namespace ddprun::dashboard
