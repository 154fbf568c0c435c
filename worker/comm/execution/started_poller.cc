#include "worker/comm/execution/started_poller.h"

#include <chrono>
#include <utility>

#include "common/blocked_signals.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::milliseconds interval(50);

}  // namespace

std::shared_ptr<StartedPoller> StartedPoller::of_process(const Function& begin) {
  static std::mutex mutex;
  static std::weak_ptr<StartedPoller> existing;
  const std::lock_guard lock(mutex);
  auto poller = existing.lock();
  if (!poller) existing = poller = std::make_shared<StartedPoller>(begin);
  return poller;
}

StartedPoller::StartedPoller(const Function& begin)
    : thread_(start_signal_free_thread([this, &begin] {
        begin();
        run();
      })) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_; });
}

StartedPoller::~StartedPoller() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartedPoller::run() {
  std::unique_lock lock(mutex_);
  begun_ = true;
  changed_.notify_all();
  while (!changed_.wait_for(lock, interval, [this] { return closing_; })) poll_all(lock);
}

// The poll in progress stays in the list until it has returned.
void StartedPoller::poll_all(std::unique_lock<std::mutex>& lock) {
  for (auto each = polls_.begin(); each != polls_.end();) {
    called_ = each;
    lock.unlock();
    (*each)();
    lock.lock();
    ++each;
    called_ = polls_.end();
    changed_.notify_all();
  }
}

StartedPoller::Registration::Registration(std::shared_ptr<StartedPoller> poller, Function poll)
    : poller_(std::move(poller)) {
  const std::lock_guard lock(poller_->mutex_);
  place_ = poller_->polls_.insert(poller_->polls_.end(), std::move(poll));
}

StartedPoller::Registration::~Registration() {
  std::unique_lock lock(poller_->mutex_);
  poller_->changed_.wait(lock, [this] { return poller_->called_ != place_; });
  poller_->polls_.erase(place_);
}

}  // namespace ddprun::comm
