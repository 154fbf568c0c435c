#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace boost::asio {
class io_context;
}

namespace ddprun::dashboard {

// Executes blocking requests, one after the other, in a thread of its own, and the continuation of each on the loop.
//
// Ownership: the loop outlives it. The destructor asks the request in progress to stop and waits for its end; its
// continuation is not executed any more. Threads: single-threaded on the loop. Errors: what a request throws is handed
// to its `failed`.
class RequestThread {
 public:
  struct Request {
    // Runs in the thread: blocks, ends soon after a stop is requested by the token, and returns the continuation.
    std::function<std::function<void()>(const std::stop_token&)> ask;
    std::function<void(const std::string& problem)> failed;  // called on the loop
  };

  explicit RequestThread(boost::asio::io_context& loop);
  ~RequestThread();
  RequestThread(const RequestThread&) = delete;
  RequestThread& operator=(const RequestThread&) = delete;

  // The first one starts the thread.
  void add(Request request);

 private:
  void run(const std::stop_token& stop);
  void execute(const Request& request, const std::stop_token& stop);
  void follow(std::function<void()> action);

  boost::asio::io_context& loop_;
  std::shared_ptr<const int> alive_ = std::make_shared<int>();  // posted functions hold it weakly
  std::mutex mutex_;
  std::condition_variable_any added_;
  std::deque<Request> requests_;
  std::jthread thread_;
};

}  // namespace ddprun::dashboard
