#include "ddprun/rendezvous/store/tcp_store.h"

#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <unistd.h>

#include "ddprun/common/bytes.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/rendezvous/store/protocol.h"
#include "ddprun/rendezvous/store/store_limits.h"
#include "ddprun/rendezvous/store/store_state.h"
#include "ddprun/rendezvous/store/tcp_socket.h"

namespace ddprun {
namespace {

using namespace rendezvous;
using Clock = Deadline::Clock;

constexpr std::size_t read_buffer_bytes = 4096;
constexpr std::chrono::milliseconds join_poll_interval{10};

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 4; ++i) text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  return names.size() > 4 ? fmt::format("{} and {} more", text, names.size() - 4) : text;
}
std::string quoted(std::string_view key) {
  return fmt::format("'{}'", key);
}

// For the length of one expression.
std::vector<std::string_view> views(std::span<const std::string> keys) {
  return {keys.begin(), keys.end()};
}

// Shorter when a stop is requested.
void sleep_for(Clock::duration time, const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Requests and replies over one socket. A wait that is cancelled throws WaitTimeout and leaves the connection in order;
// every other exception leaves it useless.
class TcpStore::Connection {
 public:
  struct WaitTimeout {};

  Connection(UniqueFd fd, const TcpStoreOptions& options)
      : fd_(std::move(fd)), grace_(options.grace), break_on_stop_(fd_.get(), options.stop) {}

  void send(const Request& request, Deadline deadline) {
    out_.clear();
    encode(request, out_);
    send_all(fd_.get(), out_, deadline);
    if (out_.capacity() > read_buffer_bytes) out_ = std::string();
  }

  // PyTorch's server wants VALIDATE in one piece. The probe rides along, so that it costs no round trip of its own.
  bool greet(Deadline deadline) {
    const auto nonce = static_cast<std::uint32_t>(::getpid());
    const std::string_view probe[] = {probe_key};
    send(ValidateRequest{}, deadline);
    send_all(fd_.get(), encode(PingRequest{nonce}) + encode(CheckRequest{probe}), deadline);
    if (const auto echo = read_number<std::uint32_t>(deadline); echo != nonce)
      throw make_error(Errc::protocol, "it answered PING {} with {}", nonce, echo);
    return read_number<std::uint8_t>(deadline) == 0;
  }

  template <class T>
  T read_number(Deadline deadline) {
    return get_le<T>(read(sizeof(T), deadline));
  }
  std::string read_vec(Deadline deadline) {
    const auto size = read_number<std::uint64_t>(deadline);
    if (size > max_reply_bytes) throw make_error(Errc::protocol, "it announced a value of {} bytes", size);
    return read(size, deadline);
  }

  void read_done(Deadline deadline) { require_status(0, read_number<std::uint8_t>(deadline)); }

  // For what follows once a wait has ended, or must be said although the deadline has passed.
  Deadline at_least_grace(Deadline deadline) const {
    return deadline.remaining() > grace_ ? deadline : Deadline::in(grace_);
  }

  // The answer to a WAIT, WAIT_GET or BARRIER just sent. After the deadline the wait is cancelled; an answer that
  // crosses the cancelling on the way counts: what was waited for is there. For WAIT_GET the value follows, which
  // finish reads.
  template <class Finish>
  auto await(Deadline deadline, Finish finish, bool wakeable = false) {
    if (wakeable && begin_wait() == Wait::cancelled) deadline = Deadline::at(Clock::now());
    auto status = status_by(deadline);
    const auto rest = at_least_grace(deadline);
    const bool woken = wakeable && end_wait();
    if (!status && !woken) send(CancelWaitRequest{}, rest);
    const bool cancelled = !status || woken;
    if (!status) status = read_number<std::uint8_t>(rest);
    if (cancelled && *status == wait_cancelled) throw WaitTimeout{};
    require_status(wait_over, *status);
    auto result = finish(rest);
    if (cancelled) require_status(wait_cancelled, read_number<std::uint8_t>(rest));
    return result;
  }
  void await(Deadline deadline, bool wakeable = false) {
    await(
        deadline, [](Deadline) { return 0; }, wakeable);
  }

  // Cancels the wakeable wait under way, or the next one. From any thread.
  void wake() {
    const std::lock_guard lock(wait_mutex_);
    if (wait_ == Wait::sent) send_all(fd_.get(), encode(CancelWaitRequest{}), Deadline::in(grace_));
    wait_ = Wait::cancelled;
  }

 private:
  // Of a wakeable request that waits, as far as cancelling it goes.
  enum class Wait { none, sent, cancelled };

  static constexpr std::uint8_t wait_over = 0;
  static constexpr std::uint8_t wait_cancelled = 1;

  static void require_status(std::uint8_t expected, std::uint8_t got) {
    if (got != expected) throw make_error(Errc::protocol, "it answered {} where {} belongs", got, expected);
  }

  // The state before: cancelled, by wake(), when nobody waited.
  Wait begin_wait() {
    const std::lock_guard lock(wait_mutex_);
    return std::exchange(wait_, Wait::sent);
  }
  // Whether wake() has cancelled it.
  bool end_wait() {
    const std::lock_guard lock(wait_mutex_);
    return std::exchange(wait_, Wait::none) == Wait::cancelled;
  }

  // The one byte that ends a wait, if it comes in time. A timeout leaves nothing half read.
  std::optional<std::uint8_t> status_by(Deadline deadline) {
    try {
      return read_number<std::uint8_t>(deadline);
    } catch (const Error& e) {
      if (e.code() != Errc::timeout) throw;
      return std::nullopt;
    }
  }

  std::string read(std::size_t size, Deadline deadline) {
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      if (read_begin_ == read_end_ && size - done >= sizeof buffer_) {
        done += receive_some(fd_.get(), bytes.data() + done, size - done, deadline);
        continue;
      }
      if (read_begin_ == read_end_) {
        read_end_ = receive_some(fd_.get(), buffer_, sizeof buffer_, deadline);
        read_begin_ = 0;
      }
      const auto n = std::min(size - done, read_end_ - read_begin_);
      std::memcpy(bytes.data() + done, buffer_ + read_begin_, n);
      read_begin_ += n;
      done += n;
    }
    return bytes;
  }

  UniqueFd fd_;
  const std::chrono::milliseconds grace_;
  const BreakOnStop break_on_stop_;
  std::mutex wait_mutex_;  // guards what follows, and the sending of a wake-up
  Wait wait_ = Wait::none;
  std::string out_;
  char buffer_[read_buffer_bytes];
  std::size_t read_begin_ = 0;  // of what buffer_ holds beyond the last reply
  std::size_t read_end_ = 0;
};

// One caller at a time.
class TcpStore::Turn {
 public:
  Turn(TcpStore& store, Deadline deadline) : store_(store) {
    std::unique_lock lock(store.mutex_);
    const auto is_free = [&] { return !store.busy_; };
    if (!deadline.when())
      store.turn_free_.wait(lock, is_free);
    else if (!store.turn_free_.wait_until(lock, *deadline.when(), is_free))
      throw make_error(Errc::timeout, "store {}: another thread's call holds this client", store.endpoint_);
    store.busy_ = true;
  }
  ~Turn() {
    {
      const std::lock_guard lock(store_.mutex_);
      store_.busy_ = false;
    }
    store_.turn_free_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  TcpStore& store_;
};

template <class What, class Action>
auto TcpStore::call(const char* verb, Deadline deadline, What what, Action action) {
  const auto start = Clock::now();
  const Turn turn(*this, deadline);
  if (broken_) throw Error(*broken_);
  try {
    return action(*connection_);
  } catch (const Connection::WaitTimeout&) {
    throw make_error(Errc::timeout, "store {}: {} {} timed out after {:.3f} s", endpoint_, verb, what(),
                     seconds_since(start));
  } catch (const Error& e) {
    const bool stopped = options_.stop.stop_requested();
    broken_ = make_error(stopped ? Errc::aborted : e.code(), "store {}: {} {} failed after {:.3f} s: {}", endpoint_,
                         verb, what(), seconds_since(start), stopped ? "it was stopped" : e.what());
    const std::lock_guard lock(mutex_);  // against wake()
    connection_.reset();
    throw Error(*broken_);
  }
}

template <class What, class Action>
auto TcpStore::call_at_once(const char* verb, Deadline deadline, What what, Action action) {
  if (deadline.expired())
    throw make_error(Errc::timeout, "store {}: {} {} was not begun, its deadline had passed", endpoint_, verb, what());
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
  // Whoever waits sees that the connection broke.
  log::debug("store {}: cancelling a wait: {}", endpoint_, e.what());
}

std::unique_ptr<TcpStore::Connection> TcpStore::dial_once(Deadline deadline) {
  auto connection =
      std::make_unique<Connection>(connect_once(options_.host, options_.port, deadline, options_.stop), options_);
  server_is_ours_ = connection->greet(deadline);
  return connection;
}

// As PyTorch's client: whatever goes wrong before the server has answered once may be its start or another's end.
void TcpStore::dial(Deadline deadline) {
  const auto start = Clock::now();
  std::minstd_rand generator(std::random_device{}());
  auto backoff = options_.backoff;
  for (;;) {
    std::string cause;
    try {
      connection_ = dial_once(deadline);
      return;
    } catch (const Error& e) {
      cause = e.what();
    }
    if (options_.stop.stop_requested()) throw make_error(Errc::aborted, "store {}: dialling was stopped", endpoint_);
    const auto remaining = deadline.remaining();
    if (remaining <= Deadline::Duration::zero())
      throw make_error(Errc::timeout, "store {}: no connection after {:.3f} s: {}", endpoint_, seconds_since(start),
                       cause);
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

void TcpStore::require_ours(const char* what) const {
  if (!server_is_ours_)
    throw make_error(Errc::unsupported, "store {}: {} needs a ddprun store; this is a plain PyTorch one", endpoint_,
                     what);
}

void TcpStore::wait_on(Connection& connection, const std::vector<std::string>& keys, Deadline deadline,
                       bool wakeable) const {
  for_each_run(
      keys, [](const auto& key) { return key.size(); },
      [&](std::span<const std::string> run) {
        connection.send(WaitRequest{views(run)}, connection.at_least_grace(deadline));
        connection.await(deadline, wakeable);
      });
}

// PyTorch's server has no request that waits and gets in one.
std::string TcpStore::fetch(Connection& connection, std::string_view key, Deadline deadline) const {
  if (server_is_ours_) {
    connection.send(WaitGetRequest{key}, connection.at_least_grace(deadline));
    return connection.await(deadline, [&](Deadline rest) { return connection.read_vec(rest); });
  }
  wait_on(connection, {std::string(key)}, deadline);
  const auto rest = connection.at_least_grace(deadline);
  connection.send(GetRequest{key}, rest);
  return connection.read_vec(rest);
}

void TcpStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  require_value(value, key);
  call_at_once(
      "set", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](Connection& c) {
        c.send(SetRequest{wire, value}, deadline);
      });
}

std::string TcpStore::get(std::string_view key, Deadline deadline) {
  return call(
      "get", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](Connection& c) { return fetch(c, wire, deadline); });
}

std::int64_t TcpStore::add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return call_at_once(
      "add", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](Connection& c) {
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
      [&, wire = wire_key(key)](Connection& c) {
        c.send(CompareSetRequest{wire, expected, desired}, deadline);
        return c.read_vec(deadline);
      });
}

bool TcpStore::check(const std::vector<std::string>& keys, Deadline deadline) {
  return call_at_once(
      "check", deadline, [&] { return join_names(keys); },
      [&, wire = wire_keys(keys)](Connection& c) {
        bool all = true;
        for_each_run(
            wire, [](const auto& key) { return key.size(); },
            [&](std::span<const std::string> run) {
              c.send(CheckRequest{views(run)}, deadline);
              all = c.read_number<std::uint8_t>(deadline) == 0 && all;
            });
        return all;
      });
}

void TcpStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  call(
      "wait for", deadline, [&] { return join_names(keys); },
      [&, wire = wire_keys(keys)](Connection& c) { wait_on(c, wire, deadline, true); });
}

bool TcpStore::erase(std::string_view key, Deadline deadline) {
  return call_at_once(
      "erase", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](Connection& c) {
        c.send(DeleteKeyRequest{wire}, deadline);
        return c.read_number<std::int64_t>(deadline) > 0;
      });
}

std::int64_t TcpStore::num_keys(Deadline deadline) {
  return call_at_once(
      "num_keys", deadline, [] { return ""; },
      [&](Connection& c) {
        c.send(NumKeysRequest{}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

void TcpStore::append(std::string_view key, std::string_view suffix, Deadline deadline) {
  require_value(suffix, key);
  call_at_once(
      "append", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](Connection& c) {
        c.send(AppendRequest{wire, suffix}, deadline);
      });
}

std::vector<std::string> TcpStore::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return call(
      "multi_get", deadline, [&] { return join_names(keys); },
      [&, wire = wire_keys(keys)](Connection& c) {
        wait_on(c, wire, deadline);
        const auto rest = c.at_least_grace(deadline);
        std::vector<std::string> values;
        for_each_run(
            wire, [](const auto& key) { return key.size(); },
            [&](std::span<const std::string> run) {
              c.send(MultiGetRequest{views(run)}, rest);
              for (std::size_t i = 0; i < run.size(); ++i) values.push_back(c.read_vec(rest));
            });
        return values;
      });
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
  call_at_once("multi_set", deadline, what, [&](Connection& c) {
    for_each_run(
        wire_pairs, [](const auto& pair) { return pair.key.size() + pair.value.size(); },
        [&](std::span<const KeyValueView> run) { c.send(MultiSetRequest{run}, deadline); });
  });
}

std::vector<std::string> TcpStore::list_keys(Deadline deadline) {
  return call_at_once(
      "list_keys", deadline, [] { return ""; },
      [&](Connection& c) {
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
      [&, wire = wire_key(queue)](Connection& c) {
        c.send(QueuePushRequest{wire, item}, deadline);
      });
}

// Waiting and popping are two requests: another consumer may come between.
std::string TcpStore::queue_pop(std::string_view queue, Deadline deadline) {
  return call(
      "queue_pop", deadline, [&] { return quoted(queue); },
      [&, wire = wire_key(queue)](Connection& c) {
        for (;;) {
          wait_on(c, {wire}, deadline);
          const auto rest = c.at_least_grace(deadline);
          c.send(QueuePopRequest{wire}, rest);
          if (c.read_number<std::int64_t>(rest) > 0) return c.read_vec(rest);
        }
      });
}

std::int64_t TcpStore::queue_length(std::string_view queue, Deadline deadline) {
  return call_at_once(
      "queue_length", deadline, [&] { return quoted(queue); },
      [&, wire = wire_key(queue)](Connection& c) {
        c.send(QueueLengthRequest{wire}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

void TcpStore::barrier(std::string_view key, std::int64_t world_size, Deadline deadline) {
  call(
      "barrier", deadline, [&] { return fmt::format("{} of {}", quoted(key), world_size); },
      [&, wire = wire_key(key)](Connection& c) {
        c.send(BarrierRequest{wire, world_size}, c.at_least_grace(deadline));
        c.await(deadline);
      });
}

void TcpStore::set_will(std::string_view key, std::string_view value, Deadline deadline) {
  require_ours("a will");
  require_value(value, key);
  call_at_once(
      "set_will", deadline, [&] { return quoted(key); },
      [&, wire = wire_key(key)](Connection& c) {
        c.send(WillRequest{wire, value}, deadline);
        c.read_done(deadline);
      });
}

void TcpStore::clear_will(Deadline deadline) {
  require_ours("a will");
  call_at_once(
      "clear_will", deadline, [] { return ""; },
      [&](Connection& c) {
        c.send(ClearWillRequest{}, deadline);
        c.read_done(deadline);
      });
}

std::int64_t TcpStore::join(Deadline deadline) {
  return call_at_once(
      "join", deadline, [] { return quoted(join_counter_key); },
      [&](Connection& c) {
        c.send(AddRequest{join_counter_key, 1}, deadline);
        return c.read_number<std::int64_t>(deadline);
      });
}

void TcpStore::wait_for_joined(std::int64_t world_size, Deadline deadline) {
  const auto start = Clock::now();
  for (;;) {
    const auto joined = parse_counter(call(
                                          "wait for the joining of", deadline, [] { return "clients"; },
                                          [&](Connection& c) { return fetch(c, join_counter_key, deadline); }),
                                      join_counter_key);
    if (joined >= world_size) return;
    if (deadline.expired())
      throw make_error(Errc::timeout, "store {}: {} of {} clients joined within {:.3f} s", endpoint_, joined,
                       world_size, seconds_since(start));
    std::this_thread::sleep_for(std::min<Deadline::Duration>(join_poll_interval, deadline.remaining()));
  }
}

}  // namespace ddprun
