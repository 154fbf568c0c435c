#include "worker/comm/execution/message_executor.h"

#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// A transfer that failed to start: wait() reports the failure, where all failures are handled.
class FailedTransfer : public Transfer {
 public:
  explicit FailedTransfer(std::string message) : message_(std::move(message)) {}
  void wait(milliseconds) override { throw std::runtime_error(message_); }
  int source() const override { return -1; }

 private:
  const std::string message_;
};

}  // namespace

void CachedThreadPool::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& thread : std::exchange(threads_, {})) thread.join();
}

void CachedThreadPool::run(Task task) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= idle_) threads_.push_back(start_signal_free_thread([this] { work(); }));
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void CachedThreadPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

WorkPtr MessageExecutor::submit(const Call& call, milliseconds timeout) {
  auto work = std::make_shared<Completion>(call.operation);
  std::shared_ptr<Transfer> transfer;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto cause = health_.cause()) return failed_work(*cause);
    health_.begin();
    transfer = start(call);
    number = numbers_.next(call.operation);
  }
  try {
    pool_.run([this, transfer, operation = call.operation, number, timeout, work]() mutable {
      finish(std::move(transfer), operation, number, timeout, *work);
    });
  } catch (const std::system_error& error) {
    fail_unwaited(std::move(transfer), call.operation, error.what(), *work);
  }
  return work;
}

// A transfer is started, but no thread can wait for it.
void MessageExecutor::fail_unwaited(std::shared_ptr<Transfer> transfer, const Operation& operation, const char* why,
                                    Completion& work) {
  const auto text =
      fmt::format("{} could not create a thread to wait for {}: {}", health_.identity(), describe(operation), why);
  health_.break_with(Error(Errc::io, text), GroupFailure{Errc::peer_lost, text});
  transfer.reset();  // before the work ends, as its memory is the caller's from then on
  health_.finish(work, health_.cause());
}

std::shared_ptr<Transfer> MessageExecutor::start(const Call& call) {
  // A send only reads its memory.
  const Span memory = call.operation.kind == OpKind::recv
                          ? call.output
                          : Span{const_cast<void*>(call.input.data), call.input.count, call.input.dtype};
  const BlockedSignals blocked;
  try {
    return transport_.start_transfer(call.operation, memory);
  } catch (const std::exception& error) {
    return std::make_shared<FailedTransfer>(error.what());
  }
}

void MessageExecutor::finish(std::shared_ptr<Transfer> transfer, const Operation& operation, std::uint64_t number,
                             milliseconds timeout, Completion& work) {
  const auto slot = health_.operation_log().begin_transfer(operation, number, timeout);
  transfer->spin_while(work.awaited());
  try {
    transfer->wait(health_.backstop(timeout));
    health_.operation_log().end(slot);
    health_.finish(work, std::nullopt, transfer->source());
  } catch (const std::exception& error) {
    const auto cause = health_.explain(slot, operation, error);
    health_.operation_log().end(slot, true);
    transfer.reset();  // before the work ends, as its memory is the caller's from then on
    health_.finish(work, cause);
  }
}

}  // namespace ddprun::comm
