#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "ddprun/rendezvous/membership/job_status.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::dashboard {

// Asks the rendezvous server for the job's status every two seconds, in a thread, as the request blocks.
//
// Ownership: the loop outlives it. Threads: the handler is called on the loop. Errors: none; while the server does not
// answer, nothing is heard.
class StatusPoller {
 public:
  StatusPoller(boost::asio::io_context& loop, std::string endpoint, std::string run_id,
               std::function<void(const JobStatus&)> handler);
  ~StatusPoller();
  StatusPoller(const StatusPoller&) = delete;
  StatusPoller& operator=(const StatusPoller&) = delete;

 private:
  void run();
  void ask();

  boost::asio::io_context& loop_;
  const std::string endpoint_;
  const std::string run_id_;
  const std::function<void(const JobStatus&)> handler_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ddprun::dashboard
