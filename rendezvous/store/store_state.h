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

#include "ddprun/rendezvous/store/protocol.h"

namespace ddprun::rendezvous {

using ConnectionId = std::uint64_t;

struct Reply {
  ConnectionId to = 0;
  std::string bytes;
};

// A wait of one connection that has no answer yet.
struct PendingWait {
  using Ticket = std::uint64_t;  // order of registration, store-wide

  bool wants_value = false;                                   // WAIT_GET
  std::size_t missing = 0;                                    // registrations that have not fired
  std::vector<std::pair<std::string, Ticket>> registrations;  // fired ones too: their tickets match nothing any more
};

// The store without its network: the key map, its waiters, queues and wills. Requests of numbered connections in,
// replies out, exactly as the protocol defines them (PROTOCOL.md). Not thread-safe.
class StoreState {
 public:
  // Appends the replies, in the order in which they must leave, also those to other connections that stop waiting.
  // Throws Errc::protocol for a request that is answered by closing the connection; nothing has changed then, and the
  // caller calls close().
  void apply(ConnectionId from, const Request& request, std::vector<Reply>& replies);

  // The connection has ended: its registrations go, its will is done. Must be called once for every connection that
  // applied anything, before its number is used again.
  void close(ConnectionId id, std::vector<Reply>& replies);

  // True while a WAIT, WAIT_GET or BARRIER of this connection has no answer yet.
  bool is_waiting(ConnectionId id) const;

  // Keys and queues that it picks go, as DELETE_KEY would have it: nobody who waits is woken.
  void erase_if(const std::function<bool(std::string_view)>& pick);

  std::size_t num_keys() const { return values_.size(); }
  // Connections with a pending wait or a will, and places in waiting lists: for tests that nothing is left behind.
  std::size_t clients_remembered() const { return clients_.size(); }
  std::size_t registrations() const;

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
    std::optional<std::pair<std::string, std::string>> will;
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
  void on(ConnectionId from, const WillRequest& r, Replies& replies);
  void on(ConnectionId from, const ClearWillRequest& r, Replies& replies);
  void on(ConnectionId from, const WaitGetRequest& r, Replies& replies);
  [[noreturn]] void on(ConnectionId from, const ValidateRequest& r, Replies& replies);
  [[noreturn]] void on(ConnectionId from, const SessionRequest& r, Replies& replies);

  bool present(std::string_view key) const;               // as CHECK and WAIT see it: a value, or a queue with items
  std::string_view value_of(std::string_view key) const;  // empty when missing
  void store(std::string_view key, std::string_view value);
  std::int64_t increment(std::string_view key, std::int64_t delta);

  void require_not_waiting(ConnectionId id) const;
  void wait_for(ConnectionId id, std::string_view key);  // one more key that id lacks
  void wake_all(std::string_view key, Replies& replies);
  void wake_one(std::string_view queue, Replies& replies);
  bool satisfy(ConnectionId id,
               Replies& replies);  // one registration less; true when that was the last and it was answered
  void stop_waiting(ConnectionId id);
  void forget_if_idle(ConnectionId id);

  KeyMap<std::string> values_;
  KeyMap<std::deque<std::string>> queues_;  // never empty ones
  KeyMap<Waiters> waiters_;                 // never empty ones
  std::unordered_map<ConnectionId, Client> clients_;
  Ticket next_ticket_ = 0;
};

// The number that a stored text stands for, as C's strtoll reads it: blanks before it and anything behind it are
// ignored. Throws Errc::protocol when there is none or it does not fit.
std::int64_t parse_counter(std::string_view text, std::string_view key);

// parse_counter(text) + delta. Throws Errc::protocol when the sum does not fit.
std::int64_t counter_sum(std::string_view text, std::int64_t delta, std::string_view key);

}  // namespace ddprun::rendezvous
