#include "rendezvous/c10d/peer_call.h"

#include <array>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "common/timer.h"
#include "rendezvous/store/async_authenticate.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/store/host_lookup.h"
#include "rendezvous/store/protocol.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(asio::io_context& loop, HostPort peer, std::string frame, std::shared_ptr<const Credentials> credentials,
       std::function<void(PeerAnswer)> done)
      : peer_(std::move(peer)),
        frame_(std::move(frame)),
        credentials_(std::move(credentials)),
        done_(std::move(done)),
        lookup_(loop),
        socket_(loop),
        bound_(loop) {}

  void start(asio::io_context& loop, std::chrono::milliseconds bound) {
    bound_.run_after(bound, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      error_code ignored;
      self->socket_.close(ignored);
      self->lookup_.cancel();
    });
    asio::co_spawn(loop, run(shared_from_this()), asio::detached);
  }

 private:
  asio::awaitable<void> run(std::shared_ptr<Call>) {
    PeerAnswer answer;
    try {
      answer = co_await exchange();
    } catch (const Error&) {
      answer = {};
    }
    bound_.cancel();
    error_code ignored;
    socket_.close(ignored);
    done_(std::move(answer));
  }

  asio::awaitable<PeerAnswer> exchange() {
    using Kind = PeerAnswer::Kind;
    const auto addresses = co_await lookup_.resolve(peer_.host, peer_.port_or(0));
    if (!addresses || addresses->found.empty()) co_return PeerAnswer{};
    const auto endpoints = rendezvous::tcp_endpoints(*addresses);
    const auto [failure, endpoint] = co_await asio::async_connect(socket_, endpoints, awaited);
    if (failure) co_return PeerAnswer{failure == asio::error::connection_refused ? Kind::refused : Kind::failed, {}};
    if (frame_.empty()) co_return PeerAnswer{Kind::answered, {}};
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    if (credentials_) channel_ = co_await rendezvous::async_authenticate(socket_, *credentials_);
    std::string bytes = rendezvous::encode(rendezvous::Request(rendezvous::ValidateRequest{})) +
                        rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{frame_}));
    if (channel_) {
      channel_->write(bytes);
      bytes = channel_->take_output();
    }
    const auto [unsent, size] = co_await asio::async_write(socket_, asio::buffer(bytes), awaited);
    if (unsent) co_return PeerAnswer{};
    co_return co_await first_frame();
  }

  asio::awaitable<PeerAnswer> first_frame() {
    rendezvous::FrameParser parser;
    std::array<char, 2048> chunk{};
    for (;;) {
      const auto [error, size] = co_await socket_.async_read_some(asio::buffer(chunk), awaited);
      if (error) co_return PeerAnswer{};
      std::string text(chunk.data(), size);
      if (channel_) {
        channel_->feed(text);
        text.clear();
        channel_->read(text);
      }
      parser.feed(text);
      if (auto frame = parser.next()) co_return PeerAnswer{PeerAnswer::Kind::answered, std::move(*frame)};
    }
  }

  const HostPort peer_;
  const std::string frame_;
  const std::shared_ptr<const Credentials> credentials_;
  const std::function<void(PeerAnswer)> done_;
  rendezvous::HostLookup lookup_;
  tcp::socket socket_;
  Timer bound_;
  std::unique_ptr<TlsChannel> channel_;  // null: clear text
};

}  // namespace

void call_peer(asio::io_context& loop, const HostPort& peer, std::string frame,
               std::shared_ptr<const Credentials> credentials, std::chrono::milliseconds bound,
               std::function<void(PeerAnswer)> done) {
  std::make_shared<Call>(loop, peer, std::move(frame), std::move(credentials), std::move(done))->start(loop, bound);
}

}  // namespace ddprun
