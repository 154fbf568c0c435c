#include "rendezvous/store/tcp_store.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "common/first_names.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/random.h"
#include "rendezvous/store/authenticate.h"
#include "rendezvous/store/batch_requests.h"
#include "rendezvous/store/local_socket.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_state.h"
#include "rendezvous/store/tcp_connection.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

using namespace rendezvous;
using Clock = Deadline::Clock;

std::string join_names(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const auto& name : names) quoted.push_back(fmt::format("'{}'", name));
  return first_names(quoted, 4);
}
std::string quoted(std::string_view key) {
  return fmt::format("'{}'", key);
}

// The views are valid for one expression.
std::vector<std::string_view> views(std::span<const std::string> keys) {
  return {keys.begin(), keys.end()};
}

// Returns early if a stop is requested.
void sleep_for(Clock::duration time, const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Serializes calls, with a deadline.
class TcpStore::CallLock {
 public:
  CallLock(TcpStore& store, Deadline deadline) : store_(store) {
    std::unique_lock lock(store.mutex_);
    const auto is_free = [&] { return !store.busy_; };
    if (!deadline.when())
      store.call_done_.wait(lock, is_free);
    else if (!store.call_done_.wait_until(lock, *deadline.when(), is_free))
      throw make_error(Errc::timeout, "store {}: another thread's call is in progress", store.endpoint_);
    store.busy_ = true;
  }
  ~CallLock() {
    {
      const std::lock_guard lock(store_.mutex_);
      store_.busy_ = false;
    }
    store_.call_done_.notify_one();
  }
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;

 private:
  TcpStore& store_;
};

template <class What, class Action>
auto TcpStore::call(const char* verb, Deadline deadline, What what, Action action) {
  const auto start = Clock::now();
  const CallLock lock(*this, deadline);
  if (broken_) throw Error(*broken_);
  try {
    return action(*connection_);
  } catch (const TcpConnection::WaitTimeout&) {
    throw make_error(Errc::timeout, "store {}: {} {} timed out after {:.3f} s", endpoint_, verb, what(),
                     seconds_since(start));
  } catch (const Error& e) {
    const bool stopped = options_.stop.stop_requested();
    const auto failure =
        make_error(stopped ? Errc::aborted : e.code(), "store {}: {} {} failed after {:.3f} s: {}", endpoint_, verb,
                   what(), seconds_since(start), stopped ? "it was stopped" : e.what());
    // Callers repeat a wait that has timed out. Here no later call can succeed.
    broken_ = failure.code() == Errc::timeout ? Error(Errc::connection_lost, failure.what()) : failure;
    const std::lock_guard guard(mutex_);  // against wake()
    connection_.reset();
    throw failure;
  }
}

template <class What, class Action>
auto TcpStore::call_at_once(const char* verb, Deadline deadline, What what, Action action) {
  if (deadline.expired())
    throw make_error(Errc::timeout, "store {}: {} {} was not sent: its deadline had passed", endpoint_, verb, what());
  return call(verb, deadline, what, action);
}

TcpStore::TcpStore(const TcpStoreOptions& options, Deadline deadline)
    : options_(options), endpoint_(format_host_port(options.host, options.port)) {
  dial(deadline);
}
TcpStore::~TcpStore() = default;

void TcpStore::wake() noexcept try {
  const std::lock_guard lock(mutex_);
  if (connection_) connection_->wake();
} catch (const std::exception& e) {
  // The waiting thread gets the error of the broken connection.
  log::debug("store {}: cancelling a wait: {}", endpoint_, e.what());
}

std::unique_ptr<TlsChannel> TcpStore::authenticate_within(int fd, Deadline deadline) {
  if (!options_.credentials) return nullptr;
  const ShutdownOnStop guard(fd, options_.stop);
  return authenticate(fd, *options_.credentials, deadline);
}

// Returns null if the agent does not serve the store there: it may be another agent than the one that set the variable.
std::unique_ptr<TcpConnection> TcpStore::dial_local(Deadline deadline) try {
  if (options_.local_socket.empty()) return nullptr;
  auto connection = std::make_unique<TcpConnection>(connect_local(options_.local_socket, options_.port), nullptr,
                                                    options_.grace, options_.stop);
  has_ddprun_extensions_ = connection->handshake(deadline);
  return connection;
} catch (const Error& e) {
  log::debug("store {}: not over the agent's socket: {}", endpoint_, e.what());
  return nullptr;
}

std::unique_ptr<TcpConnection> TcpStore::dial_tcp(Deadline deadline) {
  auto fd = connect_once(options_.host, options_.port, deadline, options_.stop);
  auto channel = authenticate_within(fd.get(), deadline);
  auto connection = std::make_unique<TcpConnection>(std::move(fd), std::move(channel), options_.grace, options_.stop);
  has_ddprun_extensions_ = connection->handshake(deadline);
  return connection;
}

// Returns the error, or nullopt on success.
std::optional<Error> TcpStore::dial_once(Deadline deadline) {
  try {
    connection_ = dial_local(deadline);
    if (!connection_) connection_ = dial_tcp(deadline);
    return std::nullopt;
  } catch (const AuthenticationError& e) {
    if (!refused_since_) refused_since_ = Clock::now();
    if (Clock::now() - *refused_since_ >= options_.refusal_patience)
      throw AuthenticationError(fmt::format("store {}: {}", endpoint_, e.what()));
    return e;
  } catch (const Error& e) {
    refused_since_.reset();
    return e;
  }
}

// Like PyTorch's client, retries after any error until the first reply: the server may be starting or being replaced.
void TcpStore::dial(Deadline deadline) {
  const auto start = Clock::now();
  std::minstd_rand generator(random_seed());
  auto backoff = options_.backoff;
  while (const auto cause = dial_once(deadline)) {
    if (options_.stop.stop_requested()) throw make_error(Errc::aborted, "store {}: dialling was stopped", endpoint_);
    const auto remaining = deadline.remaining();
    if (remaining <= Deadline::Duration::zero())
      throw make_error(Errc::timeout, "store {}: no connection after {:.3f} s: {}", endpoint_, seconds_since(start),
                       cause->what());
    sleep_for(std::min<Deadline::Duration>(backoff.next(generator), remaining), options_.stop);
  }
}

std::string TcpStore::wire_key(std::string_view key) const {
  require_key_fits(options_.key_prefix.size() + key.size(), key);
  return options_.key_prefix + std::string(key);
}

std::vector<std::string> TcpStore::wire_keys(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const auto& key : keys) result.push_back(wire_key(key));
  return result;
}

void TcpStore::require_extensions(const char* what) const {
  if (!has_ddprun_extensions_)
    throw make_error(Errc::unsupported, "store {}: {} needs a ddprun store; this is PyTorch's", endpoint_, what);
}

void TcpStore::wait_on(TcpConnection& connection, const std::vector<std::string>& keys, Deadline deadline,
                       bool wakeable) const {
  for_each_batch(
      keys, [](const auto& key) { return key.size(); },
      [&](std::span<const std::string> batch) {
        connection.send(WaitRequest{views(batch)}, connection.at_least_grace(deadline));
        connection.await(deadline, wakeable);
      });
}

// PyTorch's server has no WAIT_GET.
std::string TcpStore::fetch(TcpConnection& connection, const std::string& key, Deadline deadline, bool wakeable) const {
  if (has_ddprun_extensions_) {
    connection.send(WaitGetRequest{key}, connection.at_least_grace(deadline));
    return connection.await(
        deadline, [&](Deadline reply_deadline) { return connection.read_vec(reply_deadline); }, wakeable);
  }
  wait_on(connection, {key}, deadline, wakeable);
  const auto reply_deadline = connection.at_least_grace(deadline);
  connection.send(GetRequest{key}, reply_deadline);
  return connection.read_vec(reply_deadline);
}

// PyTorch's server has no WAIT_MULTI_GET.
std::vector<std::string> TcpStore::fetch_all(TcpConnection& connection, const std::vector<std::string>& keys,
                                             Deadline deadline) const {
  std::vector<std::string> values;
  const auto read_values = [&](std::size_t count, Deadline reply_deadline) {
    for (std::size_t i = 0; i < count; ++i) values.push_back(connection.read_vec(reply_deadline));
    return true;
  };
  if (!has_ddprun_extensions_) wait_on(connection, keys, deadline);
  for_each_batch(
      keys, [](const auto& key) { return key.size(); },
      [&](std::span<const std::string> batch) {
        const auto reply_deadline = connection.at_least_grace(deadline);
        if (has_ddprun_extensions_) {
          connection.send(WaitMultiGetRequest{views(batch)}, reply_deadline);
          connection.await(deadline, [&](Deadline end) { return read_values(batch.size(), end); });
        } else {
          connection.send(MultiGetRequest{views(batch)}, reply_deadline);
          read_values(batch.size(), reply_deadline);
        }
      });
  return values;
}

void TcpStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  require_value(value, key);
  call_at_once(
      "set", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(SetRequest{wire, value}, deadline);
      });
}

std::string TcpStore::get(std::string_view key, Deadline deadline) {
  return call(
      "get", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) { return fetch(c, wire, deadline); });
}

std::int64_t TcpStore::add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return call_at_once(
      "add", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(AddRequest{wire, delta}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

std::string TcpStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  Deadline deadline) {
  require_value(expected, key);
  require_value(desired, key);
  return call_at_once(
      "compare_set", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(CompareSetRequest{wire, expected, desired}, deadline);
        return c.read_vec(deadline);
      });
}

bool TcpStore::check(const std::vector<std::string>& keys, Deadline deadline) {
  return call_at_once(
      "check", deadline, [&] { return join_names(keys); },
      [&, wire = wire_keys(keys)](TcpConnection& c) {
        bool all = true;
        for_each_batch(
            wire, [](const auto& key) { return key.size(); },
            [&](std::span<const std::string> batch) {
              c.send(CheckRequest{views(batch)}, deadline);
              all = c.read_number<std::uint8_t>(deadline) == 0 && all;
            });
        return all;
      });
}

void TcpStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  call(
      "wait for", deadline, [&] { return join_names(keys); },
      [&, wire = wire_keys(keys)](TcpConnection& c) { wait_on(c, wire, deadline, true); });
}

std::string TcpStore::wait_get(const std::string& key, Deadline deadline) {
  return call(
      "wait for", deadline, [&] { return join_names({key}); },
      [&, wire = wire_key(key)](TcpConnection& c) { return fetch(c, wire, deadline, true); });
}

bool TcpStore::erase(std::string_view key, Deadline deadline) {
  return call_at_once(
      "erase", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(DeleteKeyRequest{wire}, deadline);
        return c.read_number<std::int64_t>(deadline) > 0;
      });
}

std::int64_t TcpStore::num_keys(Deadline deadline) {
  return call_at_once(
      "num_keys", deadline, [] { return ""; },
      [&](TcpConnection& c) {
        c.send(NumKeysRequest{}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

void TcpStore::append(std::string_view key, std::string_view suffix, Deadline deadline) {
  require_value(suffix, key);
  call_at_once(
      "append", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(AppendRequest{wire, suffix}, deadline);
      });
}

std::vector<std::string> TcpStore::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return call(
      "multi_get", deadline, [&] { return join_names(keys); },
      [&, wire = wire_keys(keys)](TcpConnection& c) { return fetch_all(c, wire, deadline); });
}

void TcpStore::multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) {
  std::vector<std::string> wire;
  std::vector<KeyValueView> wire_pairs;
  for (const auto& [key, value] : pairs) {
    require_value(value, key);
    wire.push_back(wire_key(key));
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) wire_pairs.push_back({wire[i], pairs[i].second});
  const auto what = [&] { return fmt::format("of {} keys", pairs.size()); };
  call_at_once("multi_set", deadline, what, [&](TcpConnection& c) {
    for_each_batch(
        wire_pairs, [](const auto& pair) { return pair.key.size() + pair.value.size(); },
        [&](std::span<const KeyValueView> batch) { c.send(MultiSetRequest{batch}, deadline); });
  });
}

std::vector<std::string> TcpStore::list_keys(Deadline deadline) {
  return call_at_once(
      "list_keys", deadline, [] { return ""; },
      [&](TcpConnection& c) {
        c.send(ListKeysRequest{}, deadline);
        std::vector<std::string> keys;
        for (auto left = c.read_number<std::int64_t>(deadline); left > 0; --left) {
          const auto key = c.read_vec(deadline);
          if (key.starts_with(options_.key_prefix)) keys.push_back(key.substr(options_.key_prefix.size()));
        }
        return keys;
      });
}

void TcpStore::queue_push(std::string_view queue, std::string_view item, Deadline deadline) {
  require_value(item, queue);
  call_at_once(
      "queue_push", deadline, [&] { return quoted(queue); },
      [&, wire = wire_key(queue)](TcpConnection& c) {
        c.send(QueuePushRequest{wire, item}, deadline);
      });
}

// Waiting and popping are two requests: another consumer may pop in between.
std::string TcpStore::queue_pop(std::string_view queue, Deadline deadline) {
  return call(
      "queue_pop", deadline, [&] { return quoted(queue); },
      [&, wire = wire_key(queue)](TcpConnection& c) {
        for (;;) {
          wait_on(c, {wire}, deadline);
          const auto reply_deadline = c.at_least_grace(deadline);
          c.send(QueuePopRequest{wire}, reply_deadline);
          if (c.read_number<std::int64_t>(reply_deadline) > 0) return c.read_vec(reply_deadline);
        }
      });
}

std::int64_t TcpStore::queue_length(std::string_view queue, Deadline deadline) {
  return call_at_once(
      "queue_length", deadline, [&] { return quoted(queue); },
      [&, wire = wire_key(queue)](TcpConnection& c) {
        c.send(QueueLengthRequest{wire}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

void TcpStore::barrier(std::string_view key, std::int64_t world_size, Deadline deadline) {
  call(
      "barrier", deadline, [&] { return fmt::format("{} of {}", quoted(key), world_size); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(BarrierRequest{wire, world_size}, c.at_least_grace(deadline));
        c.await(deadline);
      });
}

void TcpStore::set_will(std::string_view key, std::string_view value, Deadline deadline) {
  require_extensions("a last will");
  require_value(value, key);
  call_at_once(
      "set_will", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](TcpConnection& c) {
        c.send(LastWillRequest{wire, value}, deadline);
        c.read_done(deadline);
      });
}

void TcpStore::clear_will(Deadline deadline) {
  require_extensions("a last will");
  call_at_once(
      "clear_will", deadline, [] { return ""; },
      [&](TcpConnection& c) {
        c.send(ClearLastWillRequest{}, deadline);
        c.read_done(deadline);
      });
}

// PyTorch's server without libuv closes the connection at a GET of a missing key.
StoreResults TcpStore::execute(const std::vector<StoreCall>& calls, Deadline deadline) {
  const bool finds =
      std::ranges::any_of(calls, [](const auto& call) { return std::holds_alternative<FindCall>(call); });
  if (finds && !has_ddprun_extensions_) return Store::execute(calls, deadline);
  BatchRequests requests(has_ddprun_extensions_, [this](std::string_view key) { return wire_key(key); });
  for (const auto& each : calls) requests.add(each);
  const auto what = [&] { return fmt::format("of {} calls", calls.size()); };
  return call_at_once("batch", deadline, what, [&](TcpConnection& c) {
    c.send_encoded(requests.encoded(), deadline);
    return requests.read_replies(c, deadline);
  });
}

bool TcpStore::end_announced(Deadline deadline) {
  if (!has_ddprun_extensions_) return false;
  return call_at_once(
      "ask", deadline, [] { return "whether it ends"; },
      [&](TcpConnection& c) {
        const std::string_view key[] = {ending_key};
        c.send(CheckRequest{key}, deadline);
        return c.read_number<std::uint8_t>(deadline) == 0;
      });
}

std::int64_t TcpStore::join(Deadline deadline) {
  return call_at_once(
      "join", deadline, [] { return quoted(join_counter_key); },
      [&](TcpConnection& c) {
        c.send(AddRequest{join_counter_key, 1}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

}  // namespace ddprun
