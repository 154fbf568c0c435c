#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "worker/checkpoint/snapshot.h"

namespace ddprun::checkpoint {

// Saves a checkpoint on a thread of its own. First the thread completes the snapshot; from then on the run may change
// its state. Then it writes, with a low priority for the processor, so that the run goes before it.
//
// Ownership: what write uses outlives this object, whose destructor waits until the save has ended. Threads: one at a
//   time; write is called on the other thread. Errors: Errc::io if the system refuses a thread; those of write come out
//   of result().
class BackgroundSave {
 public:
  using Clock = std::chrono::system_clock;

  // memory: keeps that of the snapshot's tensors until the save has ended.
  BackgroundSave(std::shared_ptr<Snapshot> snapshot, std::shared_ptr<const void> memory,
                 std::function<void(const Content& content)> write);
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Waits until the snapshot is complete, and copies what the thread has not copied yet.
  void complete_copy();
  // Returns whether the save has ended, also by an error.
  bool has_ended() const { return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  // Waits until the checkpoint is on the disk, and returns when that was. Throws what write has thrown.
  Clock::time_point result() const { return ended_.get(); }

 private:
  const std::shared_ptr<Snapshot> snapshot_;
  std::shared_future<Clock::time_point> ended_;
  std::thread thread_;
};

}  // namespace ddprun::checkpoint
