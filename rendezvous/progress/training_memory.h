#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "rendezvous/progress/training_record.h"

// Memory in which each worker of a node publishes its TrainingRecord and the node's agent reads it: a memfd of one page
// for each worker. Publishing takes no system call and never waits: a sequence number before and after a change tells
// the reader whether it has read one whole record (a seqlock; Boehm, "Can seqlocks get along with programming language
// memory models?", 2012). Two copies are written in turn, so that a worker that is killed while it writes one leaves
// the other intact, and a worker that takes its place continues the sequence.
namespace ddprun {

inline constexpr const char* training_record_variable = "DDPRUN_TRAINING_RECORD";

// A mapping of a file's pages, or none. Movable. Owns the mapping.
class SharedPages {
 public:
  SharedPages() = default;
  // Throws Errc::io.
  SharedPages(int descriptor, std::size_t offset, std::size_t bytes);
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;
  ~SharedPages();

  std::byte* data() const { return data_; }
  // The size of a page.
  static std::size_t page_size();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// The agent's side. Threads: one at a time. The memory exists until the agent and all workers have ended.
class TrainingMemory {
 public:
  // Throws Errc::io.
  explicit TrainingMemory(int workers);

  // The address that a worker opens with ":<local rank>" appended: "/proc/<process>/fd/<descriptor>".
  std::string address() const;
  // The last whole record of this worker, which may be of a process that has ended; nullopt before the first.
  std::optional<TrainingRecord> read(int local_rank) const;
  // Removes all records. REQUIRES: no worker runs. Throws Errc::io.
  void clear();

 private:
  const int workers_;
  UniqueFd file_;
  SharedPages pages_;
};

// A worker's side. Threads: one at a time.
class TrainingPublisher {
 public:
  // address: "<TrainingMemory::address()>:<local rank>". Throws Errc::io if it cannot be opened from here, as in a
  // container with a PID namespace of its own, and Errc::usage for any other text.
  explicit TrainingPublisher(const std::string& address);

  void publish(const TrainingRecord& record);

 private:
  SharedPages page_;
};

}  // namespace ddprun
