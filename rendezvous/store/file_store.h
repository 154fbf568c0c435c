#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/store_state.h"

namespace ddprun {

// A Store in a file that several processes share, also over a network file system with flock(2). No server.
//
// The file is a log: every change is one request of the wire protocol (protocol.h), appended under an exclusive lock.
// Each process replays it into its own map, so reads do no I/O until the file grows. A partial record, left by a
// process that died, is ignored by readers and truncated by the next writer. The log only grows. Start each run with a
// file that does not exist or is empty: the keys of an earlier run are still valid.
//
// A wait polls the file's size, at most 50 ms apart.
// Ownership: the constructor opens or creates the file; the destructor leaves it.
// Threads: thread-safe; a call that waits does not block others.
// Errors: Errc::unsupported for last wills, since no server notices that a client died; Errc::protocol for add() to a
//   value that is not a number, which changes nothing; Errc::io naming the file for a full disk or a damaged file.
class FileStore final : public Store {
 public:
  explicit FileStore(std::filesystem::path path);

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
  class Lock;
  // Returns the reply's bytes, empty when the request has no reply.
  std::string ask(const rendezvous::Request& request, Deadline deadline);
  std::string change(const rendezvous::Request& request, Deadline deadline);
  template <class Attempt>
  auto retry(const char* verb, std::string_view key, Deadline deadline, Attempt attempt);

  std::string apply(const rendezvous::Request& request);
  std::uint64_t file_size() const;
  std::uint64_t replay(std::uint64_t size);
  void append_record(const std::string& record);
  [[noreturn]] void fail(const char* what) const;

  const std::filesystem::path path_;
  const UniqueFd fd_;
  std::mutex mutex_;              // guards the members below
  rendezvous::StoreState state_;  // the state after the replayed records
  std::uint64_t replayed_ = 0;    // bytes of the file that were replayed, whole records
  std::vector<rendezvous::Reply> replies_;
};

}  // namespace ddprun
