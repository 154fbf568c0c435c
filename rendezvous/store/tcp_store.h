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

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/backoff.h"
#include "ddprun/rendezvous/store/store.h"

namespace ddprun {
namespace rendezvous {
class TcpConnection;
}

struct TcpStoreOptions {
  std::string host;
  std::uint16_t port = 29500;
  std::string key_prefix = "/";  // of every key on the wire; PyTorch's clients put a slash there
  Backoff backoff;               // between tries to connect
  // How long the server may take, when a deadline has passed, to answer the cancelling of a wait or to finish a begun
  // answer.
  std::chrono::milliseconds grace{2'000};
  // Once a stop is requested, from whatever thread, the call under way and every later one fail with Errc::aborted at
  // once, whatever the server does; dialling too, but for the look-up of a name.
  std::stop_token stop{};
};

// The client of a store server, ours or PyTorch's, over one connection (PROTOCOL.md). Blocking, no event loop, no
// thread.
//
// The constructor dials until the server answers or the deadline passes, so a client may be started before its server:
// Errc::timeout then, naming the address and the last cause. After that nothing is retried: an add() whose answer was
// lost must not count twice.
//
// set(), append(), multi_set() and queue_push() have no answer in the protocol: they return once the system has taken
// the bytes; any later call of this client that has an answer comes after them. A wait that times out leaves the store
// usable; so does a call that finds its deadline passed before it has sent anything. After any other failure the object
// is dead and every call throws that same error. The server answers a request it refuses (add() to what is no number)
// by closing: Errc::connection_lost. A wait (get, wait, multi_get, queue_pop, barrier) whose deadline has passed
// already still asks once, so that it succeeds when there is nothing to wait for.
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
  bool erase(std::string_view key, Deadline deadline) override;
  std::int64_t num_keys(
      Deadline deadline) override;  // of the whole server, other prefixes and the join counter included
  void append(std::string_view key, std::string_view suffix, Deadline deadline) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  void multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) override;
  std::vector<std::string> list_keys(Deadline deadline) override;  // those with this client's prefix, without it
  void queue_push(std::string_view queue, std::string_view item, Deadline deadline) override;
  std::string queue_pop(std::string_view queue, Deadline deadline) override;
  std::int64_t queue_length(std::string_view queue, Deadline deadline) override;
  void barrier(std::string_view key, std::int64_t world_size, Deadline deadline) override;
  void set_will(std::string_view key, std::string_view value, Deadline deadline) override;
  void clear_will(Deadline deadline) override;
  void wake() noexcept override;

  // PyTorch's join handshake: every client that knows the world size counts itself in at the key "init/" ...
  std::int64_t join(Deadline deadline);
  // ... and the process that hosts the server waits until all have. Asks every 10 ms, as the counter cannot be waited
  // for.
  void wait_for_joined(std::int64_t world_size, Deadline deadline);

  // True when the server is ours and knows our additions (wills, one round trip for get); asked once, when connecting.
  bool server_is_ours() const { return server_is_ours_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  class Turn;
  // Runs action(connection) in turn. Its failure, described with verb and what(), ends this object unless it is a clean
  // timeout.
  template <class What, class Action>
  auto call(const char* verb, Deadline deadline, What what, Action action);
  // The same for what does not wait: not begun at all once the deadline has passed.
  template <class What, class Action>
  auto call_at_once(const char* verb, Deadline deadline, What what, Action action);

  std::optional<Error> dial_once(Deadline deadline);
  void dial(Deadline deadline);
  std::string fetch(rendezvous::TcpConnection& connection, std::string_view wire_key, Deadline deadline) const;
  void wait_on(rendezvous::TcpConnection& connection, const std::vector<std::string>& wire_keys, Deadline deadline,
               bool wakeable = false) const;
  std::string wire_key(std::string_view key) const;
  std::vector<std::string> wire_keys(const std::vector<std::string>& keys) const;
  void require_ours(const char* what) const;

  const TcpStoreOptions options_;
  const std::string endpoint_;
  bool server_is_ours_ = false;

  std::mutex mutex_;
  std::condition_variable turn_free_;
  bool busy_ = false;  // guarded by mutex_; its holder has connection_ and broken_ to itself
  std::unique_ptr<rendezvous::TcpConnection> connection_;
  std::optional<Error> broken_;
};

}  // namespace ddprun
