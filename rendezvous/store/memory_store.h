#pragma once

#include <memory>

#include "rendezvous/store/store.h"

namespace ddprun {

// A Store for the threads of one process. It runs the server's state machine with threads instead of connections, so it
// behaves as the server does, including last wills. Each object is one client of a map.
// Ownership: clients share the map, which lives until the last of them is destroyed.
// Threads: thread-safe; unlike with TcpStore a call that waits does not block other threads' calls on the same object.
// Errors: Errc::timeout; Errc::protocol for add() to a value that is not a number, which changes nothing.
class MemoryStore final : public Store {
 public:
  MemoryStore();            // a new, empty map
  ~MemoryStore() override;  // executes its last will unless it was cleared
  MemoryStore(MemoryStore&&) = delete;

  // Another client of the same map.
  std::unique_ptr<MemoryStore> another_client() const;

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool check(const std::vector<std::string>& keys, Deadline deadline) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool erase(std::string_view key, Deadline deadline) override;
  std::int64_t num_keys(Deadline deadline) override;
  void append(std::string_view key, std::string_view suffix, Deadline deadline) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  void multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) override;
  std::vector<std::string> list_keys(Deadline deadline) override;
  void queue_push(std::string_view queue, std::string_view item, Deadline deadline) override;
  std::string queue_pop(std::string_view queue, Deadline deadline) override;
  std::int64_t queue_length(std::string_view queue, Deadline deadline) override;
  void barrier(std::string_view key, std::int64_t world_size, Deadline deadline) override;
  void set_will(std::string_view key, std::string_view value, Deadline deadline) override;
  void clear_will(Deadline deadline) override;

 private:
  class Map;
  explicit MemoryStore(std::shared_ptr<Map> map);

  std::shared_ptr<Map> map_;
  std::uint64_t last_will_owner_;  // the connection number of this client's last will
};

}  // namespace ddprun
