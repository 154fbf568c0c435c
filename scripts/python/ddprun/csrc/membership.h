#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>
#include <utility>

#include "ddprun/worker/capi/ddprun.h"
#include "interpreter_gate.h"

namespace ddprun_torch {

// The group that a back end has joined. Python sets and clears it; calls read it without the interpreter's lock.
struct Slot {
  std::atomic<ddprun_group*> group = nullptr;  // null before the back end joins, and after it leaves
  std::atomic<int> calls = 0;                  // blocking calls in progress
};

// Counts a call that waits in the library, as long as it lasts.
class BlockingCall {
 public:
  explicit BlockingCall(Slot& slot) : slot_(slot) { ++slot_.calls; }
  ~BlockingCall() { --slot_.calls; }
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

 private:
  Slot& slot_;
};

// The object of ddprun.group.membership.Membership, in Python, which joins and leaves the group of a back end.
// Threads: thread-safe; the functions take the interpreter's lock, which the caller may hold.
class Membership {
 public:
  Membership(pybind11::object object, std::shared_ptr<InterpreterGate> gate)
      : object_(std::move(object)), gate_(std::move(gate)), slot_(object_.attr("slot").cast<std::shared_ptr<Slot>>()) {}
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  // REQUIRES: close() has been called.
  ~Membership() { object_.release(); }

  Slot& slot() const { return *slot_; }
  ddprun_group* group() const {
    if (auto* const group = slot_->group.load(std::memory_order_relaxed)) return group;
    return reinterpret_cast<ddprun_group*>(call<std::uintptr_t>("group"));  // throws the error
  }

  // Calls a method. What that raises is thrown as pybind11::error_already_set.
  template <class Result, class... Arguments>
  Result call(const char* method, Arguments&&... arguments) const {
    const pybind11::gil_scoped_acquire locked;
    return object_.attr(method)(std::forward<Arguments>(arguments)...).template cast<Result>();
  }

  // Leaves the group, and returns whether it could. Otherwise all stays as it is: in a child that was forked, which has
  // none of the threads that would have to end, and at the end of the process, when a thread whose call ended would
  // wait for an interpreter that is gone.
  bool close() {
    if (::getpid() != process_ || slot_->calls > 0) return false;
    return gate_->pass([this] {
      const pybind11::gil_scoped_acquire locked;
      try {
        object_.attr("close")();
      } catch (pybind11::error_already_set& error) {
        error.discard_as_unraisable("ddprun: leaving a group");
      }
      object_ = pybind11::object();
    });
  }

 private:
  const pid_t process_ = ::getpid();
  pybind11::object object_;
  const std::shared_ptr<InterpreterGate> gate_;
  const std::shared_ptr<Slot> slot_;
};

}  // namespace ddprun_torch
