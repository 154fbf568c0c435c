#include "ddprun/launcher/dashboard/status_poller.h"

#include <chrono>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/rendezvous/membership/session_request.h"

namespace ddprun::dashboard {
namespace {

using namespace std::chrono_literals;

constexpr auto interval = 2s;
constexpr auto reply_timeout = 2s;
constexpr std::uint16_t default_port = 29400;

}  // namespace

StatusPoller::StatusPoller(boost::asio::io_context& loop, std::string endpoint, std::string run_id,
                           std::function<void(const JobStatus&)> handler)
    : loop_(loop), endpoint_(std::move(endpoint)), run_id_(std::move(run_id)), handler_(std::move(handler)) {
  const BlockedSignals blocked;  // the thread takes none of them from the loop
  thread_ = std::thread([this] { run(); });
}

StatusPoller::~StatusPoller() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StatusPoller::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return stopping_; })) {
    lock.unlock();
    ask();
    lock.lock();
  }
}

void StatusPoller::ask() {
  try {
    const auto server = parse_host_port(endpoint_);
    for (auto& job : ask_for_status({.host = server.host, .port = server.port_or(default_port)}, run_id_,
                                    Deadline::in(reply_timeout)))
      boost::asio::post(loop_, [handler = handler_, job = std::move(job)] { handler(job); });
  } catch (const Error& e) {
    log::debug("the dashboard does not hear of the other nodes: {}", e.what());
  }
}

}  // namespace ddprun::dashboard
