#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/store.h"
#include "rendezvous/trust/credentials.h"

namespace ddprun {
namespace rendezvous {
class TcpConnection;
}

struct TcpStoreOptions {
  std::string host;
  std::uint16_t port = 29500;
  std::string key_prefix = "/";  // prefix of every key on the wire; PyTorch's clients use a slash
  Backoff backoff;               // times between attempts to connect
  // The time that the server may take, once a deadline has passed, to reply to a cancellation or to complete a reply.
  std::chrono::milliseconds grace{2'000};
  // After a stop request the call in progress and every later one fail with Errc::aborted at once; dialling too.
  std::stop_token stop{};
  std::shared_ptr<const Credentials> credentials = nullptr;  // null: sends no token, clear text
  // The Unix socket of the server's agent (local_socket.h), used instead of host and port while it accepts; empty:
  // none.
  std::string local_socket = {};
  // The time for which to redial a server that does not know the token: it may be that of an earlier job.
  std::chrono::milliseconds refusal_patience{10'000};
};

// The client of a store server, ddprun's or PyTorch's, over one connection (PROTOCOL.md). Blocking; no event loop.
//
// The constructor dials until the server replies or the deadline passes, so a client may start before its server.
// Nothing is retried afterwards: an add() whose reply was lost must not count twice.
//
// set(), append(), multi_set() and queue_push() have no reply in the protocol: they return once the kernel has the
// bytes. The server applies them before any later request of this client.
//
// Ownership: owns the connection. Threads: those of Store; one call at a time.
// Errors: the constructor throws Errc::timeout naming the address and the last cause, and AuthenticationError if for
//   refusal_patience that cause was that one of the two sides does not know the token. A wait that times out leaves the
//   object usable, as does a call whose deadline had passed before it sent anything. After any other failure every call
//   throws the same error, but Errc::connection_lost in place of Errc::timeout. The server refuses a request (add() to
//   a value that is not a number) by closing: Errc::connection_lost. A wait (get, wait, wait_get, multi_get, queue_pop,
//   barrier) whose deadline has passed still checks once.
class TcpStore final : public Store {
 public:
  TcpStore(const TcpStoreOptions& options, Deadline deadline);
  ~TcpStore() override;

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool check(const std::vector<std::string>& keys, Deadline deadline) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  std::string wait_get(const std::string& key, Deadline deadline) override;
  bool erase(std::string_view key, Deadline deadline) override;
  // The number of keys of the whole server, including other prefixes and the join counter.
  std::int64_t num_keys(Deadline deadline) override;
  void append(std::string_view key, std::string_view suffix, Deadline deadline) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  void multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) override;
  std::vector<std::string> list_keys(Deadline deadline) override;  // with this client's prefix, which is removed
  void queue_push(std::string_view queue, std::string_view item, Deadline deadline) override;
  std::string queue_pop(std::string_view queue, Deadline deadline) override;
  std::int64_t queue_length(std::string_view queue, Deadline deadline) override;
  void barrier(std::string_view key, std::int64_t world_size, Deadline deadline) override;
  void set_will(std::string_view key, std::string_view value, Deadline deadline) override;
  void clear_will(Deadline deadline) override;
  bool end_announced(Deadline deadline) override;
  StoreResults execute(const std::vector<StoreCall>& calls, Deadline deadline) override;
  void wake() noexcept override;

  // The client's part of PyTorch's join handshake: increments the key "init/" and returns its value.
  std::int64_t join(Deadline deadline);

  // Returns whether the server is ddprun's, with its extensions (last wills, get in one round trip).
  bool has_ddprun_extensions() const { return has_ddprun_extensions_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  class CallLock;
  // Runs action(connection) when no other call is in progress. An error, described with verb and what(), makes this
  // object unusable; a WaitTimeout does not.
  template <class What, class Action>
  auto call(const char* verb, Deadline deadline, What what, Action action);
  // Does what call() does, for a request that does not wait: it is not sent once the deadline has passed.
  template <class What, class Action>
  auto call_at_once(const char* verb, Deadline deadline, What what, Action action);

  std::unique_ptr<TlsChannel> authenticate_within(int fd, Deadline deadline);
  std::unique_ptr<rendezvous::TcpConnection> dial_local(Deadline deadline);
  std::unique_ptr<rendezvous::TcpConnection> dial_tcp(Deadline deadline);
  std::optional<Error> dial_once(Deadline deadline);
  void dial(Deadline deadline);
  std::string fetch(rendezvous::TcpConnection& connection, const std::string& wire_key, Deadline deadline,
                    bool wakeable = false) const;
  std::vector<std::string> fetch_all(rendezvous::TcpConnection& connection, const std::vector<std::string>& wire_keys,
                                     Deadline deadline) const;
  void wait_on(rendezvous::TcpConnection& connection, const std::vector<std::string>& wire_keys, Deadline deadline,
               bool wakeable = false) const;
  std::string wire_key(std::string_view key) const;
  std::vector<std::string> wire_keys(const std::vector<std::string>& keys) const;
  void require_extensions(const char* what) const;

  const TcpStoreOptions options_;
  const std::string endpoint_;
  bool has_ddprun_extensions_ = false;
  std::optional<std::chrono::steady_clock::time_point> refused_since_;  // while dialling: when it was first refused

  std::mutex mutex_;
  std::condition_variable call_done_;
  bool busy_ = false;  // guarded by mutex_; the call that set it has exclusive use of connection_ and broken_
  std::unique_ptr<rendezvous::TcpConnection> connection_;
  std::optional<Error> broken_;
};

}  // namespace ddprun
