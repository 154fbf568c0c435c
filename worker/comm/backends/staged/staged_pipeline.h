#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "worker/comm/backends/staged/device_copies.h"
#include "worker/comm/backends/staged/staged_call.h"
#include "worker/comm/backends/staged/staged_task.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Executes collectives on memory of the current device, over a group of the host, in the order in which they were
// added: as a pipeline of pieces, also of several collectives. While the host's group works on a piece, the next ones
// are copied to the host, and those before it back to the device.
//
// Ownership: references the group. Threads: one. Errors: advance() throws what CUDA, the group or a timeout ends the
// operations with; then comes cancel().
class StagedPipeline {
 public:
  StagedPipeline(ProcessGroup& host, std::size_t piece_bytes, int device);

  void add(StagedTask task);
  // Does what can be done without waiting. Returns whether there was anything.
  bool advance();
  bool idle() const { return tasks_.empty(); }
  // Completes the tasks that the host's group had finished when it failed, before cancel() ends the others. REQUIRES:
  // the group has failed.
  void complete_finished() noexcept;
  // Ends all tasks with the cause, once nobody uses their memory. REQUIRES: the host's group has failed.
  void cancel(const Error& cause) noexcept;

 private:
  // The number of pieces: one is copied to the host, one waits there, so that the group has work when it is done with
  // the one before it, one is in the group, one is copied back.
  static constexpr std::size_t most_in_progress = 4;

  struct Running {
    StagedTask task;
    Division division;
    std::size_t begun = 0;        // pieces
    std::size_t copied_back = 0;  // pieces whose copies to the device are queued
    std::size_t finished = 0;     // pieces
  };
  enum class Stage { to_host, in_group, to_device };
  struct Piece {
    Running* of;
    StagedCall staged;
    std::byte* memory;
    Stage stage = Stage::to_host;
    std::unique_ptr<Event> copied;
    WorkPtr work;
    Deadline copied_by;
  };

  bool begin_piece();
  bool advance(Piece& piece);
  void copy_back(Piece& piece);
  void finish_oldest();
  Running* next_to_begin();

  ProcessGroup& host_;
  const std::size_t piece_bytes_;
  CopyStream to_host_, to_device_;
  std::vector<StagingMemory> slots_;  // there are most_in_progress
  std::size_t next_slot_ = 0;
  std::deque<Running> tasks_;  // pieces point to them
  std::deque<Piece> pieces_;   // in progress, in order
};

}  // namespace ddprun::comm
