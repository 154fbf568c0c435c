#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddprun/common/deadline.h"

namespace ddprun {

// A shared map of byte strings with waiting, as PyTorch's c10d Store: how the processes of a job find each other.
//
// Keys and values are arbitrary bytes (key at most 8 KiB, value at most 8 MiB). Counters are kept as decimal text,
// visible to get(). Every call blocks until its answer or its deadline; a passed deadline is Errc::timeout naming the
// store, the key(s) and the elapsed time; a lost server is Errc::connection_lost, and stays so for every later call of
// that object. Thread-safe: calls from several threads are serialised; one that waits holds up the others.
class Store {
 public:
  using KeyValue = std::pair<std::string, std::string>;

  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits until key exists, then its value.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;
  // A missing key counts as 0. Returns the new value. Errc::protocol when the value is no decimal number.
  virtual std::int64_t add(std::string_view key, std::int64_t delta, Deadline deadline) = 0;
  // Stores desired when the value equals expected, or when key is missing and expected is empty. Returns what the
  // caller should now believe: desired on success, the current value otherwise; expected for a missing key and
  // non-empty expected.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  Deadline deadline) = 0;
  virtual bool check(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual void wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // True when something was erased.
  virtual bool erase(std::string_view key, Deadline deadline) = 0;
  virtual std::int64_t num_keys(Deadline deadline) = 0;
  virtual void append(std::string_view key, std::string_view suffix, Deadline deadline) = 0;
  // Waits for all keys.
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual void multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) = 0;
  virtual std::vector<std::string> list_keys(Deadline deadline) = 0;

  // Queues have a namespace of their own. pop() waits for an item.
  virtual void queue_push(std::string_view queue, std::string_view item, Deadline deadline) = 0;
  virtual std::string queue_pop(std::string_view queue, Deadline deadline) = 0;
  virtual std::int64_t queue_length(std::string_view queue, Deadline deadline) = 0;

  // Returns once world_size callers have entered under this key. A key serves one barrier.
  virtual void barrier(std::string_view key, std::int64_t world_size, Deadline deadline) = 0;

  // A last will: when this client goes away without clear_will() (its process died, its connection broke), the store
  // sets key to value unless the key exists. How survivors learn at once who was lost: they wait() on the key. One will
  // a client; a second replaces it. Errc::unsupported when the server knows no wills (a plain PyTorch store).
  virtual void set_will(std::string_view key, std::string_view value, Deadline deadline) = 0;
  virtual void clear_will(Deadline deadline) = 0;

  // From any thread: the wait() of this object under way, or else the next one, ends as though its deadline had passed,
  // unless the keys are there. How a thread that waits is told something else meanwhile. Stores that cannot do it take
  // no notice.
  virtual void wake() noexcept {}
};

}  // namespace ddprun
