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
  // It went with its machine: nothing answers for it, not even a kernel.
  bool lost() const { return lost_; }
  // When it can run: now, or the end of its stop.
  Time runs_from() const { return std::max(time_.now(), frozen_until_); }
  void freeze(Duration duration) { frozen_until_ = std::max(frozen_until_, time_.now() + duration); }
  // The kernel closes its connections.
  void kill();
  void lose();

  // Runs the action in this process: later when it is stopped then, never when it has ended.
  void at(Time when, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { at(time_.now() + delay, std::move(action)); }

 private:
  friend class Connection;

  VirtualTime& time_;
  bool alive_ = true;
  bool lost_ = false;
  Time frozen_until_{};
  std::vector<std::pair<std::weak_ptr<Connection>, int>> connections_;  // and which side of it is ours
};
using ProcessPtr = std::shared_ptr<Process>;

}  // namespace ddprun::testing
