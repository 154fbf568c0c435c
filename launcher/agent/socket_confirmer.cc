#include "launcher/agent/socket_confirmer.h"

#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/random.h"
#include "rendezvous/store/async_authenticate.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/host_lookup.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/trust/job_sockets.h"
#include "rendezvous/trust/owner_question.h"
#include "rendezvous/trust/socket_owner.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

}  // namespace

class SocketConfirmer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, std::string host, std::uint16_t port, std::shared_ptr<const Admission> admission)
      : host_(std::move(host)),
        port_(port),
        admission_(std::move(admission)),
        loop_(loop),
        lookup_(loop),
        socket_(loop),
        pause_(loop) {}

  void start() {
    try {
      owners_.emplace();
    } catch (const Error& e) {
      return log::warn("clients without the token on this host are not admitted elsewhere: {}", e.what());
    }
    asio::co_spawn(loop_, run(shared_from_this()), asio::detached);
  }

  void stop() {
    ended_ = true;
    error_code ignored;
    socket_.close(ignored);
    lookup_.cancel();
    pause_.cancel();
  }

 private:
  // The parameter keeps this object alive as long as the coroutine's frame.
  asio::awaitable<void> run(std::shared_ptr<Impl>) {
    Backoff backoff;
    std::minstd_rand random{random_seed()};
    while (!ended_) {
      const auto problem = co_await attempt();
      error_code ignored;
      socket_.close(ignored);
      if (ended_) co_return;
      log::debug("answering for this host at {}:{}: {}", host_, port_, problem);
      pause_.expires_after(backoff.next(random));
      co_await pause_.async_wait(awaited);
    }
  }

  // Dials and serves the connection to its end. Returns why it ended.
  asio::awaitable<std::string> attempt() {
    const auto addresses = co_await lookup_.resolve(host_, port_);
    if (!addresses || ended_) co_return "it was given up";
    if (!addresses->problem.empty()) co_return addresses->problem;
    const auto endpoints = rendezvous::tcp_endpoints(*addresses);
    if (const auto [failure, endpoint] = co_await asio::async_connect(socket_, endpoints, awaited); failure)
      co_return failure.message();
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    try {
      co_return co_await serve();
    } catch (const Error& e) {
      co_return e.what();
    }
  }

  asio::awaitable<std::string> serve() {
    channel_ = co_await rendezvous::async_authenticate(socket_, *admission_->credentials);
    using namespace rendezvous;
    std::string out = encode(Request(ValidateRequest{})) + encode(Request(ConfirmRequest{}));
    FrameParser parser;
    std::array<char, 4096> chunk;
    for (;;) {
      if (channel_) {
        channel_->write(out);
        out = channel_->take_output();
      }
      if (const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(out), awaited); error)
        co_return error.message();
      out.clear();
      const auto [error, size] = co_await socket_.async_read_some(asio::buffer(chunk), awaited);
      if (error) co_return error.message();
      parser.feed(opened({chunk.data(), size}));
      while (const auto question = parser.next())
        encode(Request(ConfirmRequest{answer_to(decode_owner_question(*question))}), out);
    }
  }

  std::string opened(std::string_view bytes) {
    if (!channel_) return std::string(bytes);
    std::string text;
    channel_->feed(bytes);
    channel_->read(text);
    return text;
  }

  std::int64_t answer_to(const OwnerQuestion& question) {
    const auto number = static_cast<std::int64_t>(question.number);
    const auto owner = owners_->find(question.ends);
    return owner && is_of_job(*owner) ? number : -number;
  }

  bool is_of_job(const SocketOwner& owner) {
    if (owner.user == 0 && admission_->user != 0) return admission_->admits_root;
    if (owner.user != admission_->user) return false;
    return admission_->clients == Admission::Clients::of_user || job_.hold(owner.inode);
  }

  const std::string host_;
  const std::uint16_t port_;
  const std::shared_ptr<const Admission> admission_;
  asio::io_context& loop_;
  rendezvous::HostLookup lookup_;
  tcp::socket socket_;
  asio::steady_timer pause_;
  std::optional<SocketOwners> owners_;
  JobSockets job_;
  std::unique_ptr<TlsChannel> channel_;  // null: clear text
  bool ended_ = false;
};

SocketConfirmer::SocketConfirmer(asio::io_context& loop, const std::string& host, std::uint16_t port,
                                 std::shared_ptr<const Admission> admission)
    : impl_(std::make_shared<Impl>(loop, host, port, std::move(admission))) {
  impl_->start();
}

SocketConfirmer::~SocketConfirmer() {
  impl_->stop();
}

}  // namespace ddprun
