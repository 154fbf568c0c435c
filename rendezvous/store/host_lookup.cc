#include "rendezvous/store/host_lookup.h"

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <netdb.h>
#include <system_error>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "common/detached_thread.h"
#include "common/error.h"
#include "common/host_port.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

// Looks the name up; blocks.
HostAddresses run_lookup(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(name_to_resolve(host).c_str(), std::to_string(port).c_str(), &hints, &list);
  HostAddresses result;
  if (status != 0) {
    result.problem = fmt::format("cannot resolve host '{}': {}", host,
                                 status == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(status));
    return result;
  }
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    HostAddress address{.size = entry->ai_addrlen};
    std::memcpy(&address.raw, entry->ai_addr, entry->ai_addrlen);
    result.found.push_back(address);
  }
  ::freeaddrinfo(list);
  return result;
}

std::optional<HostAddresses> numeric_address(const std::string& host, std::uint16_t port) {
  auto result = run_lookup(host, port, AI_NUMERICHOST);
  return result.problem.empty() ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace

std::string HostAddress::text() const {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(get(), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return without_v4_mapping(text);
}

std::vector<asio::ip::tcp::endpoint> tcp_endpoints(const HostAddresses& addresses) {
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const auto& address : addresses.found) {
    auto& endpoint = endpoints.emplace_back();
    if (address.size > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), &address.raw, address.size);
    endpoint.resize(address.size);
  }
  return endpoints;
}

std::string unanswered_lookup_text(const std::string& host) {
  return fmt::format("cannot resolve host '{}': the name server does not answer", host);
}

// A lookup, shared by its thread and by its waiters.
class HostLookup::Pending {
 public:
  static std::shared_ptr<Pending> start(const std::string& host, std::uint16_t port) {
    auto self = std::make_shared<Pending>();
    self->host_ = host;
    try {
      start_detached_thread([self, host, port] { self->finish(run_lookup(host, port, 0)); });
    } catch (const std::system_error& failure) {
      self->finish({.problem = fmt::format("cannot resolve host '{}': cannot start a thread: {}", host,
                                           failure.code().message())});
    }
    return self;
  }

  const std::string& host() const { return host_; }

  // Returns nullopt at the deadline or after a stop request.
  std::optional<HostAddresses> wait(Deadline deadline, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto has_result = [this] { return result_.has_value(); };
    if (deadline.when())
      done_.wait_until(lock, stop, *deadline.when(), has_result);
    else
      done_.wait(lock, stop, has_result);
    return result_;
  }

  // Calls listener once there is a result, at once or on the lookup's thread, and not after forget() has returned.
  void listen(std::function<void()> listener) {
    const std::lock_guard lock(mutex_);
    if (result_) return listener();
    listener_ = std::move(listener);
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    listener_ = nullptr;
  }

 private:
  void finish(HostAddresses result) {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    done_.notify_all();
    if (const auto listener = std::exchange(listener_, nullptr)) listener();
  }

  std::string host_;
  std::mutex mutex_;
  std::condition_variable_any done_;
  std::optional<HostAddresses> result_;
  std::function<void()> listener_;
};

HostAddresses look_up_host(const std::string& host, std::uint16_t port, Deadline deadline,
                           const std::stop_token& stop) {
  if (auto numeric = numeric_address(host, port)) return std::move(*numeric);
  auto result = HostLookup::Pending::start(host, port)->wait(deadline, stop);
  return result ? std::move(*result) : HostAddresses{.problem = unanswered_lookup_text(host)};
}

HostLookup::HostLookup(asio::io_context& loop)
    : loop_(loop), done_(std::make_shared<asio::steady_timer>(loop, asio::steady_timer::time_point::max())) {}

HostLookup::~HostLookup() {
  cancel();
}

asio::awaitable<std::optional<HostAddresses>> HostLookup::resolve(std::string host, std::uint16_t port) {
  if (auto numeric = numeric_address(host, port)) co_return numeric;
  if (!pending_ || pending_->host() != host) pending_ = Pending::start(host, port);
  const auto pending = pending_;
  waiting_ = true;
  pending->listen([&loop = loop_, weak = std::weak_ptr(done_)] {
    asio::post(loop, [weak] {
      if (const auto done = weak.lock()) done->cancel();
    });
  });
  for (;;) {
    co_await done_->async_wait(asio::as_tuple(asio::use_awaitable));
    if (!waiting_) co_return std::nullopt;  // cancelled
    auto result = pending->wait(Deadline::at(Deadline::Clock::now()), {});
    if (!result) continue;  // woken by a lookup that was given up
    waiting_ = false;
    pending_.reset();
    co_return result;
  }
}

void HostLookup::cancel() {
  if (pending_) pending_->forget();
  waiting_ = false;
  done_->cancel();
}

}  // namespace ddprun::rendezvous
