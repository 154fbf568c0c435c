#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <unistd.h>
#include <utility>
#include <vector>

#include "errors.h"

namespace ddprun_torch {

// Before a process ends it leaves its groups, and serves their stores for ranks that still need them.
// A child that was forked has no groups and no stores. Thread-safe.
class ProcessEnd {
 public:
  using Clock = std::chrono::steady_clock;

  // A member of a group, from add() to remove().
  class Member {
   public:
    virtual void leave_with_process() = 0;

   protected:
    ~Member() = default;
  };

  ProcessEnd() = default;
  ProcessEnd(const ProcessEnd&) = delete;
  ProcessEnd& operator=(const ProcessEnd&) = delete;
  // A server that a child has inherited is its parent's, with threads that the child does not have.
  ~ProcessEnd() {
    for (auto& each : servers_)
      if (each.process != ::getpid()) new std::shared_ptr<ddprun_store_server>(std::move(each.server));
  }

  void add(Member* member) {
    const std::lock_guard lock(members_mutex_);
    members_.emplace(::getpid(), member);
  }
  void remove(Member* member) {
    const std::lock_guard lock(members_mutex_);
    members_.erase({::getpid(), member});
  }
  void leave_all() {
    const std::lock_guard lock(members_mutex_);
    for (const auto& [process, member] : members_)
      if (process == ::getpid()) member->leave_with_process();
  }

  // Serves the store of a group that this process has left. Returns once its other ranks know that the server may
  // close. failed: the group has failed, so that the others need the store only for the cause.
  void serve_on(std::shared_ptr<ddprun_store_server> server, bool failed) {
    ddprun_store_announce_end(server.get(), known_bound.count());
    const std::lock_guard lock(servers_mutex_);
    std::erase_if(servers_, [](const Server& each) { return each.process == ::getpid() && each.unused(); });
    servers_.push_back({::getpid(), std::move(server), Clock::now() + (failed ? bound_after_failure : bound)});
  }
  // Returns true once no rank needs the servers any longer, or their time is over. Waits for this at most that long.
  bool drain(std::chrono::milliseconds at_most) {
    const auto servers = needed_servers();
    if (servers.empty()) return true;
    servers.front().await_unused(at_most);
    return needed_servers().empty();
  }

 private:
  // The time for which a process serves the store of a group that it has left, for ranks that have not left, and for
  // those that only read why the group failed. Ranks that remain after it have no store.
  static constexpr std::chrono::milliseconds bound{30'000}, bound_after_failure{2'000};
  static constexpr std::chrono::milliseconds known_bound{5'000};  // a rank may be frozen

  struct Server {
    pid_t process;
    std::shared_ptr<ddprun_store_server> server;
    Clock::time_point until;

    bool await_unused(std::chrono::milliseconds at_most) const {
      return ddprun_store_drain(server.get(), at_most.count()) == 1;
    }
    bool unused() const { return await_unused(std::chrono::milliseconds(0)); }
  };

  std::vector<Server> needed_servers() {
    const std::lock_guard lock(servers_mutex_);
    std::vector<Server> needed;
    for (const auto& each : servers_)
      if (each.process == ::getpid() && Clock::now() < each.until && !each.unused()) needed.push_back(each);
    return needed;
  }

  std::mutex members_mutex_;  // is locked before the other one
  std::set<std::pair<pid_t, Member*>> members_;
  std::mutex servers_mutex_;
  std::vector<Server> servers_;
};

}  // namespace ddprun_torch
