#include "worker/checkpoint/disk_watch.h"

#include <thread>

#include <fmt/chrono.h>

#include "common/error.h"
#include "worker/checkpoint/helper_thread.h"

namespace ddprun::checkpoint {
namespace {

constexpr int slices = 10;  // of the time limit

}  // namespace

void DiskWatch::request(std::string what, const std::function<void()>& read) {
  const std::lock_guard lock(mutex_);
  if (abandoned_after_.count() > 0) refuse();
  if (read) read();
  what_ = std::move(what);
  ++requests_;
}

void DiskWatch::wait_for_end(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time) {
  ended_.wait_for(lock, time, [this] { return !is_running_; });
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
  // A clock would count the time in which this process is stopped, which is no fault of the disk.
  const auto slice = std::chrono::ceil<std::chrono::milliseconds>(limit / static_cast<double>(slices));
  for (int unanswered = 0; is_running_ && unanswered < slices;) {
    const auto before = requests_;
    wait_for_end(lock, slice);
    unanswered = requests_ == before ? unanswered + 1 : 0;
  }
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
