#include "rendezvous/store/memory_store.h"

#include <condition_variable>
#include <functional>
#include <mutex>

#include "common/error.h"
#include "rendezvous/store/reply_reader.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_state.h"

namespace ddprun {

using namespace rendezvous;

// The state machine. Each call uses its own connection number, so that it can wait for its own reply.
class MemoryStore::Map {
 public:
  ConnectionId new_number() {
    const std::lock_guard lock(mutex_);
    return next_number_++;
  }

  // Returns the reply's bytes; empty for requests that have no reply.
  std::string ask(const Request& request) {
    const std::lock_guard lock(mutex_);
    return apply(next_number_++, request).value_or("");
  }
  std::string ask_as(ConnectionId number, const Request& request) {
    const std::lock_guard lock(mutex_);
    return apply(number, request).value_or("");
  }

  // Throws Errc::timeout at the deadline and removes the wait.
  std::string ask_and_wait(const char* verb, std::string_view key, const Request& request, Deadline deadline) {
    const auto start = Deadline::Clock::now();
    std::unique_lock lock(mutex_);
    const auto number = next_number_++;
    if (auto reply = apply(number, request)) return *std::move(reply);
    Waiter waiter;
    waiters_.emplace(number, &waiter);
    const auto answered = [&] { return waiter.reply.has_value(); };
    if (deadline.when())
      waiter.came.wait_until(lock, *deadline.when(), answered);
    else
      waiter.came.wait(lock, answered);
    waiters_.erase(number);
    if (waiter.reply) return *std::move(waiter.reply);
    close_locked(number);
    throw_wait_timeout("memory store", verb, key, start);
  }

  void close(ConnectionId number) {
    const std::lock_guard lock(mutex_);
    close_locked(number);
  }

 private:
  struct Waiter {
    std::condition_variable came;
    std::optional<std::string> reply;
  };

  std::optional<std::string> apply(ConnectionId number, const Request& request) {
    state_.apply(number, request, replies_);
    return dispatch(number);
  }
  void close_locked(ConnectionId number) {
    state_.close(number, replies_);
    dispatch(number);
  }

  // Hands the replies to the waiting calls; returns the one for number.
  std::optional<std::string> dispatch(ConnectionId number) {
    std::optional<std::string> own;
    for (auto& reply : replies_) {
      if (reply.to == number) {
        own = std::move(reply.bytes);
      } else if (const auto waiter = waiters_.find(reply.to); waiter != waiters_.end()) {
        waiter->second->reply = std::move(reply.bytes);
        waiter->second->came.notify_one();
      }
    }
    replies_.clear();
    return own;
  }

  std::mutex mutex_;
  StoreState state_;
  std::vector<Reply> replies_;
  std::unordered_map<ConnectionId, Waiter*> waiters_;
  ConnectionId next_number_ = 1;
};

MemoryStore::MemoryStore() : MemoryStore(std::make_shared<Map>()) {}
MemoryStore::MemoryStore(std::shared_ptr<Map> map) : map_(std::move(map)), last_will_owner_(map_->new_number()) {}
MemoryStore::~MemoryStore() {
  map_->close(last_will_owner_);
}
std::unique_ptr<MemoryStore> MemoryStore::another_client() const {
  return std::unique_ptr<MemoryStore>(new MemoryStore(map_));
}

void MemoryStore::set(std::string_view key, std::string_view value, Deadline) {
  require_key(key);
  require_value(value, key);
  map_->ask(SetRequest{key, value});
}

std::string MemoryStore::get(std::string_view key, Deadline deadline) {
  require_key(key);
  ReplyReader reply(map_->ask_and_wait("get", key, WaitGetRequest{key}, deadline));
  reply.u8();
  return reply.vec();
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t delta, Deadline) {
  require_key(key);
  return ReplyReader(map_->ask(AddRequest{key, delta})).i64();
}

std::string MemoryStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                     Deadline) {
  require_key(key);
  require_value(desired, key);
  return ReplyReader(map_->ask(CompareSetRequest{key, expected, desired})).vec();
}

bool MemoryStore::check(const std::vector<std::string>& keys, Deadline) {
  return ReplyReader(map_->ask(CheckRequest{checked_views(keys)})).u8() == 0;
}

void MemoryStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  map_->ask_and_wait("wait for", keys.empty() ? "" : keys.front(), WaitRequest{checked_views(keys)}, deadline);
}

bool MemoryStore::erase(std::string_view key, Deadline) {
  require_key(key);
  return ReplyReader(map_->ask(DeleteKeyRequest{key})).i64() > 0;
}

std::int64_t MemoryStore::num_keys(Deadline) {
  return ReplyReader(map_->ask(NumKeysRequest{})).i64();
}

void MemoryStore::append(std::string_view key, std::string_view suffix, Deadline) {
  require_key(key);
  map_->ask(AppendRequest{key, suffix});
}

std::vector<std::string> MemoryStore::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  wait(keys, deadline);
  ReplyReader reply(map_->ask(MultiGetRequest{checked_views(keys)}));
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(reply.vec());
  return values;
}

void MemoryStore::multi_set(const std::vector<KeyValue>& pairs, Deadline) {
  map_->ask(MultiSetRequest{checked_views(pairs)});
}

std::vector<std::string> MemoryStore::list_keys(Deadline) {
  ReplyReader reply(map_->ask(ListKeysRequest{}));
  std::vector<std::string> keys;
  for (auto left = reply.i64(); left > 0; --left) keys.push_back(reply.vec());
  return keys;
}

void MemoryStore::queue_push(std::string_view queue, std::string_view item, Deadline) {
  require_key(queue);
  require_value(item, queue);
  map_->ask(QueuePushRequest{queue, item});
}

// Waiting and popping are two requests, as on the wire: another consumer may pop in between.
std::string MemoryStore::queue_pop(std::string_view queue, Deadline deadline) {
  require_key(queue);
  for (;;) {
    const std::string_view names[] = {queue};
    map_->ask_and_wait("queue_pop", queue, WaitRequest{names}, deadline);
    ReplyReader reply(map_->ask(QueuePopRequest{queue}));
    if (reply.i64() > 0) return reply.vec();
  }
}

std::int64_t MemoryStore::queue_length(std::string_view queue, Deadline) {
  return ReplyReader(map_->ask(QueueLengthRequest{queue})).i64();
}

void MemoryStore::barrier(std::string_view key, std::int64_t world_size, Deadline deadline) {
  require_key(key);
  map_->ask_and_wait("barrier", key, BarrierRequest{key, world_size}, deadline);
}

void MemoryStore::set_will(std::string_view key, std::string_view value, Deadline) {
  require_key(key);
  require_value(value, key);
  map_->ask_as(last_will_owner_, LastWillRequest{key, value});
}

void MemoryStore::clear_will(Deadline) {
  map_->ask_as(last_will_owner_, ClearLastWillRequest{});
}

}  // namespace ddprun
