#include "worker/comm/backends/mpi/mpi_thread.h"

#include "common/blocked_signals.h"

namespace ddprun::comm {

MpiThread::MpiThread() : thread_(start_signal_free_thread([this] { work(); })) {}

MpiThread::~MpiThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void MpiThread::run(const std::function<void()>& body) {
  Call call{body};
  std::unique_lock lock(mutex_);
  calls_.push_back(&call);
  arrived_.notify_one();
  done_.wait(lock, [&] { return call.done; });
}

void MpiThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    auto* const call = calls_.front();
    calls_.pop_front();
    lock.unlock();
    call->body();
    lock.lock();
    call->done = true;
    done_.notify_all();
  }
}

}  // namespace ddprun::comm
