#include "rendezvous/hosting/hosted_endpoint.h"

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "common/host_port.h"
#include "common/log.h"

namespace ddprun {

struct HostedEndpoint::Drain {
  Drain(boost::asio::io_context& loop, std::chrono::milliseconds time, std::function<void()> then)
      : timer(loop), results(time), done(std::move(then)) {}
  void finish() {
    timer.cancel();
    if (const auto then = std::exchange(done, nullptr)) then();
  }

  boost::asio::steady_timer timer;
  const std::chrono::milliseconds results;
  bool waits_for_results = false;
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

void HostedEndpoint::drain(std::chrono::milliseconds results, std::function<void()> done) {
  hub_.refuse_new_jobs();
  drain_ = std::make_shared<Drain>(loop_, results, std::move(done));
  hub_.on_session_end([this] { session_ended(); });
  if (hub_.jobs() > 0) log::info("{}", serving_text());
  session_ended();
}

// Posted: the owner may destroy this object in done(), and the hub may still be on the stack here.
void HostedEndpoint::session_ended() {
  if (hub_.sessions() == 0)
    boost::asio::post(loop_, [weak = std::weak_ptr(drain_)] {
      if (const auto drain = weak.lock()) drain->finish();
    });
  else if (hub_.jobs() == 0)
    wait_for_results();
}

void HostedEndpoint::wait_for_results() {
  if (std::exchange(drain_->waits_for_results, true)) return;
  drain_->timer.expires_after(drain_->results);
  drain_->timer.async_wait([weak = std::weak_ptr(drain_)](boost::system::error_code error) {
    const auto drain = weak.lock();
    if (!error && drain) drain->finish();
  });
}

std::string HostedEndpoint::serving_text() const {
  std::string names;
  for (const auto& id : hub_.run_ids())
    if (names.size() < 200) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", id);
  return fmt::format(
      "the job of this ddprun has ended; it still serves port {} for the job{} of run id {}: it ends with {}, or by a "
      "signal, which shuts the server down",
      port(), hub_.jobs() == 1 ? "" : "s", names, hub_.jobs() == 1 ? "that job" : "those jobs");
}

}  // namespace ddprun
