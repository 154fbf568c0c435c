#include "worker/checkpoint/disk_watch.h"

#include <thread>

#include <fmt/chrono.h>

#include "common/error.h"
#include "worker/checkpoint/helper_thread.h"

namespace ddprun::checkpoint {

void DiskWatch::request(std::string what) {
  const std::lock_guard lock(mutex_);
  if (abandoned_after_.count() > 0) refuse();
  what_ = std::move(what);
  since_ = Clock::now();
}

void DiskWatch::run_on_thread(std::function<void()> act, std::shared_ptr<DiskWatch> self,
                              std::chrono::milliseconds limit) {
  request("use the disk");
  is_running_ = true;
  std::thread thread;
  try {
    thread = start_helper_thread("writes a checkpoint", [act = std::move(act), self = std::move(self)] {
      act();
      const std::lock_guard lock(self->mutex_);
      self->is_running_ = false;
      self->ended_.notify_all();
    });
  } catch (...) {
    is_running_ = false;
    throw;
  }
  std::unique_lock lock(mutex_);
  while (is_running_ && Clock::now() < since_ + limit) ended_.wait_until(lock, since_ + limit);
  if (is_running_) {
    abandoned_after_ = limit;
    thread.detach();
    refuse();
  }
  lock.unlock();
  thread.join();
}

void DiskWatch::refuse() const {
  throw make_error(Errc::io, "cannot {}: the disk has not answered for {} (checkpoint.timeout)", what_,
                   std::chrono::duration<double>(abandoned_after_));
}

}  // namespace ddprun::checkpoint
