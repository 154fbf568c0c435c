#include "launcher/dashboard/request_thread.h"

#include <exception>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/blocked_signals.h"
#include "common/process_limits.h"

namespace ddprun::dashboard {

RequestThread::RequestThread(boost::asio::io_context& loop) : loop_(loop) {}

RequestThread::~RequestThread() = default;  // destroys the thread, which requests a stop and joins

void RequestThread::add(Request request) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
  }
  added_.notify_one();
  if (thread_.joinable()) return;
  const BlockedSignals blocked;  // signals are handled by the loop's thread
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void RequestThread::run(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!added_.wait(lock, stop, [this] { return !requests_.empty(); }) || stop.stop_requested()) return;
    const auto request = std::move(requests_.front());
    requests_.pop_front();
    lock.unlock();
    execute(request, stop);
  }
}

void RequestThread::execute(const Request& request, const std::stop_token& stop) {
  try {
    follow(request.ask(stop));
  } catch (const std::exception& e) {
    follow([failed = request.failed, problem = exception_text(e)] { failed(problem); });
  }
}

void RequestThread::follow(std::function<void()> action) {
  boost::asio::post(loop_, [alive = std::weak_ptr(alive_), action = std::move(action)] {
    if (alive.lock()) action();
  });
}

}  // namespace ddprun::dashboard
