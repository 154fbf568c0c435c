#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/store/store_call.h"

namespace ddprun {

// A key-value store shared by the processes of a job, with blocking waits, like PyTorch's c10d Store.
// Keys and values are arbitrary bytes: a key at most 8 KiB, a value at most 8 MiB. Counters are stored as decimal text,
// which get() returns.
// Ownership: an object is one client of the store.
// Threads: thread-safe; calls are serialized, so one that waits blocks the others.
// Errors: every call blocks until its reply or its deadline. Errc::timeout at the deadline, naming the store, the keys
//   and the elapsed time; Errc::connection_lost once the server is lost, for every later call too.
class Store {
 public:
  using KeyValue = std::pair<std::string, std::string>;

  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits until key exists, then returns its value.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;
  // A missing key counts as 0. Returns the new value. Throws Errc::protocol if the value is not a decimal number.
  virtual std::int64_t add(std::string_view key, std::int64_t delta, Deadline deadline) = 0;
  // Stores desired if the value equals expected, or if key is missing and expected is empty. Returns desired on
  // success; otherwise the current value, or expected if the key is missing.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  Deadline deadline) = 0;
  virtual bool check(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual void wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Waits for one key and returns its value, in one round trip where the store can.
  virtual std::string wait_get(const std::string& key, Deadline deadline);
  // Returns whether the key existed.
  virtual bool erase(std::string_view key, Deadline deadline) = 0;
  virtual std::int64_t num_keys(Deadline deadline) = 0;
  virtual void append(std::string_view key, std::string_view suffix, Deadline deadline) = 0;
  // Waits for all keys.
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual void multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) = 0;
  virtual std::vector<std::string> list_keys(Deadline deadline) = 0;

  // Queues have a namespace of their own. queue_pop() waits for an item.
  virtual void queue_push(std::string_view queue, std::string_view item, Deadline deadline) = 0;
  virtual std::string queue_pop(std::string_view queue, Deadline deadline) = 0;
  virtual std::int64_t queue_length(std::string_view queue, Deadline deadline) = 0;

  // Returns once world_size callers have entered with this key. Use a key for one barrier only.
  virtual void barrier(std::string_view key, std::int64_t world_size, Deadline deadline) = 0;

  // A last will, as in MQTT: if this client is lost before clear_will() (its process died, its connection broke), the
  // store sets key to value unless the key exists. Survivors that wait() on the key see at once which client was lost.
  // A client has one last will; a second replaces it. Throws Errc::unsupported if the server has no last wills
  // (PyTorch's own store).
  virtual void set_will(std::string_view key, std::string_view value, Deadline deadline) = 0;
  virtual void clear_will(Deadline deadline) = 0;

  // Returns whether the process that serves the store has announced an orderly end: from then on the loss of the store
  // is no sign of a failure. False on stores that do not support it.
  virtual bool end_announced(Deadline /*deadline*/) { return false; }

  // Makes these calls in order, in one round trip where the store can, and returns their results. After an error some
  // may have taken effect.
  virtual StoreResults execute(const std::vector<StoreCall>& calls, Deadline deadline);

  // Makes the current wait() or wait_get() of this object, or the next one if there is none, end as at its deadline,
  // unless its keys exist. Any thread may call it. It has no effect on stores that do not support it.
  virtual void wake() noexcept {}
};

}  // namespace ddprun
