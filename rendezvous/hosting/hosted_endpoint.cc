#include "ddprun/rendezvous/hosting/hosted_endpoint.h"

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "ddprun/common/host_port.h"

namespace ddprun {

struct HostedEndpoint::Drain {
  Drain(boost::asio::io_context& loop, std::function<void()> then) : timer(loop), done(std::move(then)) {}
  void finish() {
    timer.cancel();
    if (const auto then = std::exchange(done, nullptr)) then();
  }

  boost::asio::steady_timer timer;
  std::function<void()> done;
};

HostedEndpoint::HostedEndpoint(boost::asio::io_context& loop, std::unique_ptr<StoreServer> server,
                               MembershipHubOptions options)
    : loop_(loop), server_(std::move(server)), hub_(loop, server_->session_sender(), options) {
  server_->set_session_hub(&hub_);
}

HostedEndpoint::~HostedEndpoint() {
  server_->set_session_hub(nullptr);
}

void HostedEndpoint::withdraw(const std::string& reason) {
  hub_.announce_shutdown(fmt::format("{} on host {}", reason, local_host_name()));
}

void HostedEndpoint::drain(Deadline deadline, std::function<void()> done) {
  hub_.refuse_new_sessions();
  drain_ = std::make_shared<Drain>(loop_, std::move(done));
  const std::weak_ptr<Drain> weak = drain_;
  const auto finish = [weak] {
    if (const auto drain = weak.lock()) drain->finish();
  };
  if (hub_.sessions() == 0) {
    boost::asio::post(loop_, finish);
    return;
  }
  // Posted: the owner may destroy this object in done(), and the hub is still on the stack here.
  hub_.on_session_end([this, finish] {
    if (hub_.sessions() == 0) boost::asio::post(loop_, finish);
  });
  if (!deadline.when()) return;
  drain_->timer.expires_at(*deadline.when());
  drain_->timer.async_wait([finish](boost::system::error_code error) {
    if (!error) finish();
  });
}

}  // namespace ddprun
