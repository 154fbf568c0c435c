#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simulation/virtual_time.h"

namespace ddprun::testing {

class Connection;

// A process that can be stopped for a while, killed, or lost with its machine.
class Process : public std::enable_shared_from_this<Process> {
 public:
  explicit Process(VirtualTime& time) : time_(time) {}

  bool alive() const { return alive_; }
  // Returns whether its machine has lost power: not even the kernel answers then.
  bool lost() const { return lost_; }
  // Returns when it can run: now, or when its stop ends.
  Time runnable_at() const { return std::max(time_.now(), frozen_until_); }
  void freeze(Duration duration) { frozen_until_ = std::max(frozen_until_, time_.now() + duration); }
  // Ends it, and closes its connections.
  void kill();
  void lose_power();

  // Runs the action in this process: later if it is stopped then, never if it has ended.
  void at(Time when, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { at(time_.now() + delay, std::move(action)); }

 private:
  friend class Connection;

  VirtualTime& time_;
  bool alive_ = true;
  bool lost_ = false;
  Time frozen_until_{};
  std::vector<std::pair<std::weak_ptr<Connection>, int>> connections_;  // and this process's side of each
};
using ProcessPtr = std::shared_ptr<Process>;

}  // namespace ddprun::testing
