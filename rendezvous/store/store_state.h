#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/store/protocol.h"

namespace ddprun::rendezvous {

// A number that the caller chooses for each connection.
using ConnectionId = std::uint64_t;

// The bytes to send to one connection.
struct Reply {
  ConnectionId to = 0;
  std::string bytes;
};

// A wait of one connection that has no reply yet.
struct PendingWait {
  using Ticket = std::uint64_t;  // order of registration, store-wide

  std::vector<std::string> wanted;                            // keys of which the reply has the values (WAIT_GET)
  std::size_t missing = 0;                                    // keys still awaited
  std::vector<std::pair<std::string, Ticket>> registrations;  // those of all keys; tickets of present keys are stale
};

// The state of a store server: keys, waits, queues and last wills. A state machine without I/O: requests of numbered
// connections go in, replies come out, as PROTOCOL.md defines.
// Ownership: a value. Threads: not thread-safe. Errors: see apply().
class StoreState {
 public:
  // Appends the replies in the order in which to send them, including those that end waits of other connections.
  // Throws Errc::protocol for a request that is answered by closing the connection; the state is unchanged then, and
  // the caller calls close().
  void apply(ConnectionId from, const Request& request, std::vector<Reply>& replies);

  // The connection has closed: removes its waits and executes its last will. Call it once for every connection that
  // applied a request, before its number is reused.
  void close(ConnectionId id, std::vector<Reply>& replies);

  // Returns whether a WAIT, WAIT_GET or BARRIER of this connection has no reply.
  bool is_waiting(ConnectionId id) const;

  // From now on a CHECK of only ending_key finds it.
  void announce_end() { ending_ = true; }

  // Removes matching keys and queues, as DELETE_KEY does: no wait ends by it.
  void erase_if(const std::function<bool(std::string_view)>& predicate);

  // The value of a key; nullopt if there is no such key.
  std::optional<std::string> find(std::string_view key) const;

  std::size_t num_keys() const { return values_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <class T>
  using KeyMap = std::unordered_map<std::string, T, Hash, std::equal_to<>>;
  using Ticket = PendingWait::Ticket;
  using Waiters = std::map<Ticket, ConnectionId>;
  using Replies = std::vector<Reply>;

  struct Client {
    std::optional<PendingWait> wait;
    std::optional<std::pair<std::string, std::string>> last_will;
  };

  void on(ConnectionId from, const SetRequest& r, Replies& replies);
  void on(ConnectionId from, const CompareSetRequest& r, Replies& replies);
  void on(ConnectionId from, const GetRequest& r, Replies& replies);
  void on(ConnectionId from, const AddRequest& r, Replies& replies);
  void on(ConnectionId from, const CheckRequest& r, Replies& replies);
  void on(ConnectionId from, const WaitRequest& r, Replies& replies);
  void on(ConnectionId from, const NumKeysRequest& r, Replies& replies);
  void on(ConnectionId from, const DeleteKeyRequest& r, Replies& replies);
  void on(ConnectionId from, const AppendRequest& r, Replies& replies);
  void on(ConnectionId from, const MultiGetRequest& r, Replies& replies);
  void on(ConnectionId from, const MultiSetRequest& r, Replies& replies);
  void on(ConnectionId from, const CancelWaitRequest& r, Replies& replies);
  void on(ConnectionId from, const PingRequest& r, Replies& replies);
  void on(ConnectionId from, const QueuePushRequest& r, Replies& replies);
  void on(ConnectionId from, const QueuePopRequest& r, Replies& replies);
  void on(ConnectionId from, const QueueLengthRequest& r, Replies& replies);
  void on(ConnectionId from, const ListKeysRequest& r, Replies& replies);
  void on(ConnectionId from, const BarrierRequest& r, Replies& replies);
  void on(ConnectionId from, const LastWillRequest& r, Replies& replies);
  void on(ConnectionId from, const ClearLastWillRequest& r, Replies& replies);
  void on(ConnectionId from, const WaitGetRequest& r, Replies& replies);
  void on(ConnectionId from, const WaitMultiGetRequest& r, Replies& replies);
  [[noreturn]] void on(ConnectionId from, const ValidateRequest& r, Replies& replies);
  [[noreturn]] void on(ConnectionId from, const SessionRequest& r, Replies& replies);
  [[noreturn]] void on(ConnectionId from, const ConfirmRequest& r, Replies& replies);

  bool present(std::string_view key) const;               // it has a value or a non-empty queue, as for CHECK and WAIT
  std::string_view value_of(std::string_view key) const;  // empty if missing
  void store(std::string_view key, std::string_view value);
  std::int64_t increment(std::string_view key, std::int64_t delta);

  void require_not_waiting(ConnectionId id) const;
  void wait_for(ConnectionId id, std::string_view key);  // registers id for a missing key
  // Replies with the values of all keys, once they have some.
  template <class Keys>
  void wait_for_values(ConnectionId id, const Keys& keys, Replies& replies);
  template <class Keys>
  void put_values(std::string& out, const Keys& keys) const;
  void wake_all(std::string_view key, Replies& replies);
  void wake_one(std::string_view queue, Replies& replies);
  // One awaited key is present; returns whether it was the last and the wait ended.
  bool satisfy(ConnectionId id, Replies& replies);
  void stop_waiting(ConnectionId id);
  void erase_if_idle(ConnectionId id);

  KeyMap<std::string> values_;
  KeyMap<std::deque<std::string>> queues_;  // no empty ones
  KeyMap<Waiters> waiters_;                 // no empty ones
  bool ending_ = false;                     // announce_end() was called
  std::unordered_map<ConnectionId, Client> clients_;
  Ticket next_ticket_ = 0;
};

// The number in a stored text, as strtoll(3) reads it: leading blanks and trailing characters are ignored. Throws
// Errc::protocol if there is no number or it does not fit.
std::int64_t parse_counter(std::string_view text, std::string_view key);

// Returns parse_counter(text) + delta. Throws Errc::protocol on overflow.
std::int64_t counter_sum(std::string_view text, std::int64_t delta, std::string_view key);

}  // namespace ddprun::rendezvous
