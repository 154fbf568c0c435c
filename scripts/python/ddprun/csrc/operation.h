#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/SmallVector.h>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <pybind11/pybind11.h>
#include <thread>
#include <utility>
#include <vector>

#include "call.h"
#include "errors.h"
#include "interpreter_gate.h"

namespace ddprun_torch {

// One call of the user's, of one or several operations of the library: keeps their memory until all have ended, then
// finishes the call once, on the first thread that notices. Thread-safe.
class Operation {
 public:
  // Keeps memory that the library uses.
  void keep(at::Tensor memory) { memory_.push_back(std::move(memory)); }
  void then(Finish finish) {
    if (finish) finishes_.push_back(std::move(finish));
  }
  // Takes ownership of the handle.
  void add(ddprun_work* work) { works_.push_back(work); }
  void add(std::shared_ptr<Operation> part) { parts_.push_back(std::move(part)); }
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    for (auto* const work : works_) ddprun_work_free(work);
  }

  bool done() {
    for (auto* const work : works_)
      if (!ddprun_work_done(work)) return false;
    for (const auto& part : parts_)
      if (!part->done()) return false;
    return true;
  }

  // Returns the error of the call, or nullptr; throws when timeout_ms (negative: none) passes first.
  std::exception_ptr wait(std::int64_t timeout_ms) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return failure_;
    }
    // It waits for all of them, also after a failure: their memory is in use until they have ended.
    std::exception_ptr failure;
    for (auto* const work : works_) {
      ddprun_error error;
      if (ddprun_work_wait(work, timeout_ms, &error) == DDPRUN_OK) continue;
      if (!ddprun_work_done(work)) std::rethrow_exception(exception_of(error));
      if (!failure) failure = exception_of(error);
    }
    for (const auto& part : parts_)
      if (const auto of_part = part->wait(timeout_ms); of_part && !failure) failure = of_part;
    return end(failure);
  }

  // Waits, and leaves the rest to wait().
  void await() const {
    for (auto* const work : works_) {
      ddprun_error error;
      ddprun_work_wait(work, -1, &error);
    }
    for (const auto& part : parts_) part->await();
  }

  int source() const { return works_.empty() ? -1 : ddprun_work_source(works_.front()); }

  // Calls listener(failure) once the call has ended: now if it has.
  void on_end(std::function<void(const std::exception_ptr&)> listener) {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        listeners_.push_back(std::move(listener));
        return;
      }
    }
    listener(failure_);
  }

 private:
  std::exception_ptr end(std::exception_ptr failure) {
    // They are freed without the mutex: a tensor that Python has dropped takes the interpreter's lock to be freed, and
    // a thread that holds that lock may be waiting for the mutex.
    decltype(memory_) memory;
    decltype(finishes_) finishes;
    decltype(listeners_) listeners;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return failure_;
      failure_ = std::move(failure);
      if (!failure_) run_finishes();
      ended_ = true;
      memory.swap(memory_);
      finishes.swap(finishes_);
      listeners.swap(listeners_);
    }
    for (const auto& listener : listeners) listener(failure_);
    return failure_;
  }

  void run_finishes() {
    try {
      at::NoGradGuard no_grad;
      for (const auto& finish : finishes_) finish();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  c10::SmallVector<ddprun_work*, 1> works_;
  std::vector<std::shared_ptr<Operation>> parts_;
  std::mutex mutex_;  // guards the members below
  bool ended_ = false;
  std::exception_ptr failure_;
  std::vector<at::Tensor> memory_;
  std::vector<Finish> finishes_;
  std::vector<std::function<void(const std::exception_ptr&)>> listeners_;
};
using OperationPtr = std::shared_ptr<Operation>;

// Listeners may be Python's: a thread that waits for the thread that calls them must not hold the interpreter's lock.
class ReleasedGil {
 public:
  ReleasedGil() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// Waits for operations on a thread of its own, in their order: for those whose end has a listener, and for those whose
// handle the user has dropped. The thread starts with the first of them.
class Completer {
 public:
  explicit Completer(std::shared_ptr<InterpreterGate> gate) : gate_(std::move(gate)) {}
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;
  // REQUIRES: the operations end, since their group has been left or has failed.
  ~Completer() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    if (!thread_.joinable()) return;
    const ReleasedGil released;
    // The last reference may be dropped by a listener.
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  void push(OperationPtr operation) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    queue_.push_back(std::move(operation));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      OperationPtr operation;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        operation = std::move(queue_.front());
        queue_.pop_front();
      }
      operation->await();
      // The operation is leaked at the interpreter's end: its listeners are Python's, and its tensors may be.
      if (!gate_->pass([&] { operation->wait(-1), operation.reset(); })) new OperationPtr(std::move(operation));
    }
  }

  const std::shared_ptr<InterpreterGate> gate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OperationPtr> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace ddprun_torch
