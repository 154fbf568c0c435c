#include "launcher/agent/store_probe.h"

#include <chrono>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/store/awaited.h"
#include "rendezvous/store/host_lookup.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds patience{3};
constexpr std::chrono::milliseconds retry_pause{200};

}  // namespace

class StoreProbe::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, std::string host, std::uint16_t port, Listener unreachable)
      : host_(std::move(host)),
        port_(port),
        unreachable_(std::move(unreachable)),
        lookup_(loop),
        socket_(loop),
        pause_(loop),
        patience_(loop, patience) {}

  void start(asio::io_context& loop) {
    patience_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self) self->give_up();
    });
    asio::co_spawn(loop, run(shared_from_this()), asio::detached);
  }

  void stop() {
    unreachable_ = nullptr;
    end();
  }

 private:
  asio::awaitable<void> run(std::shared_ptr<Impl>) {
    while (!ended_) {
      problem_ = co_await attempt();
      if (problem_.empty()) co_return end();
      if (ended_) co_return;
      pause_.expires_after(retry_pause);
      co_await pause_.async_wait(awaited);
    }
  }

  // Returns the problem; empty on success.
  asio::awaitable<std::string> attempt() {
    const auto addresses = co_await lookup_.resolve(host_, port_);
    if (!addresses) co_return "it was given up";
    if (!addresses->problem.empty()) co_return addresses->problem;
    const auto endpoints = rendezvous::tcp_endpoints(*addresses);
    const auto [failure, endpoint] = co_await asio::async_connect(socket_, endpoints, awaited);
    error_code ignored;
    socket_.close(ignored);
    co_return failure ? failure.message() : "";
  }

  void give_up() {
    if (lookup_.pending()) problem_ = rendezvous::unanswered_lookup_text(host_);
    const std::string problem = problem_.empty() ? "no answer" : problem_;
    if (const auto listener = std::exchange(unreachable_, nullptr)) listener(problem);
    end();
  }

  void end() {
    ended_ = true;
    error_code ignored;
    socket_.close(ignored);
    lookup_.cancel();
    pause_.cancel();
    patience_.cancel();
  }

  const std::string host_;
  const std::uint16_t port_;
  Listener unreachable_;
  rendezvous::HostLookup lookup_;
  tcp::socket socket_;
  asio::steady_timer pause_;
  asio::steady_timer patience_;
  std::string problem_;
  bool ended_ = false;
};

StoreProbe::StoreProbe(asio::io_context& loop, const std::string& host, std::uint16_t port, Listener unreachable)
    : impl_(std::make_shared<Impl>(loop, host, port, std::move(unreachable))) {
  impl_->start(loop);
}

StoreProbe::~StoreProbe() {
  impl_->stop();
}

}  // namespace ddprun
