#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "worker/comm/backends/staged/device_copies.h"
#include "worker/comm/backends/staged/staged_task.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Memory for messages, used again. Thread-safe.
class StagingPool {
 public:
  explicit StagingPool(int device) : device_(device) {}
  std::unique_ptr<StagingMemory> take();
  void give_back(std::unique_ptr<StagingMemory> memory);

 private:
  const int device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StagingMemory>> unused_;
};

// A send or receive of memory of a device, and its memory of the host. A receive is in the host's group from the start:
// receives match messages in the order of the calls.
struct StagedMessage {
  StagedTask task;
  std::unique_ptr<StagingMemory> memory;
  WorkPtr in_group{};  // set once it is there
};
StagedMessage stage_message(ProcessGroup& host, StagingPool& pool, StagedTask task);

// Executes sends and receives of memory of the current device over a group of the host, all at once: none waits for
// another, but that sends begin in the order in which they were added.
//
// Ownership: references the group and the pool. Threads: one. Errors: those of StagedPipeline.
class StagedMessages {
 public:
  StagedMessages(ProcessGroup& host, StagingPool& pool, int device)
      : host_(host), pool_(pool), to_host_(device), to_device_(device) {}

  void add(StagedMessage message);
  // Does what can be done without waiting. Returns whether there was anything.
  bool advance();
  bool idle() const { return messages_.empty(); }
  // Does what StagedPipeline's function does.
  void complete_finished() noexcept;
  // Ends all messages with the cause, once nobody uses their memory. REQUIRES: the host's group has failed.
  void cancel(const Error& cause) noexcept;

 private:
  struct Running {
    StagedMessage message;
    std::unique_ptr<Event> copied;  // set while a copy is in progress
    Deadline copied_by;
  };

  bool advance(Running& running, bool may_send);
  void copy_back(Running& running);
  bool is_copied(Running& running) const;
  void finish(Running& running);

  ProcessGroup& host_;
  StagingPool& pool_;
  CopyStream to_host_, to_device_;
  std::list<Running> messages_;
};

}  // namespace ddprun::comm
