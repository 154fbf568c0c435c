#include "rendezvous/membership/server_connection.h"

#include <cstdint>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "rendezvous/store/async_authenticate.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/store/protocol.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

}  // namespace

asio::awaitable<std::string> ServerConnection::connect(const std::vector<tcp::endpoint>& endpoints) {
  const auto [failure, endpoint] = co_await asio::async_connect(socket_, endpoints, awaited);
  if (failure) co_return failure.message();
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  co_return "";
}

void ServerConnection::adopt(UniqueFd connection) {
  socket_.assign(tcp::v4(), connection.release());  // Asio only reads and writes the descriptor
}

asio::awaitable<void> ServerConnection::authenticate(const Credentials& credentials) {
  channel_ = co_await rendezvous::async_authenticate(socket_, credentials);
}

asio::awaitable<bool> ServerConnection::is_torch_store() {
  using namespace rendezvous;
  const std::string_view keys[] = {probe_key};
  // PyTorch's server requires VALIDATE in one piece.
  const std::string hello = encode(Request(ValidateRequest{}));
  const std::string requests = encode(Request(PingRequest{})) + encode(Request(CheckRequest{keys}));
  for (const auto* bytes : {&hello, &requests}) {
    const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(*bytes), awaited);
    if (error) co_return false;
  }
  std::array<char, sizeof(std::uint32_t) + 1> reply{};
  const auto [error, size] = co_await asio::async_read(socket_, asio::buffer(reply), awaited);
  constexpr std::array<char, sizeof reply> missing = {0, 0, 0, 0, 1};
  co_return !error && reply == missing;
}

asio::awaitable<ServerConnection::Received> ServerConnection::read() {
  const auto [error, size] = co_await socket_.async_read_some(asio::buffer(chunk_), awaited);
  if (error) co_return Received{.problem = error.message(), .at_end = error == asio::error::eof};
  const std::string_view bytes(chunk_.data(), size);
  if (!channel_) co_return Received{.text = bytes};
  try {
    opened_.clear();
    channel_->feed(bytes);
    channel_->read(opened_);
    co_return Received{.text = opened_};
  } catch (const Error& broken) {
    co_return Received{.problem = broken.what()};
  }
}

std::string ServerConnection::sealed(std::string text) {
  if (!channel_) return text;
  channel_->write(text);
  return channel_->take_output();
}

void ServerConnection::write(std::string text) {
  outgoing_.push_back(sealed(std::move(text)));
  if (outgoing_.size() == 1) write_next();
}

void ServerConnection::write_next() {
  asio::async_write(socket_, asio::buffer(outgoing_.front()),
                    [self = shared_from_this()](error_code error, std::size_t) {
                      if (error) return;
                      self->outgoing_.pop_front();
                      if (!self->outgoing_.empty()) self->write_next();
                    });
}

void ServerConnection::write_at_once(std::string text) {
  if (!outgoing_.empty()) return;
  const std::string bytes = sealed(std::move(text));
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.write_some(asio::buffer(bytes), ignored);
}

void ServerConnection::close() {
  error_code ignored;
  socket_.close(ignored);
}

void ServerConnection::reset() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

}  // namespace ddprun
