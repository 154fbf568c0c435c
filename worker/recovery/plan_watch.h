#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "common/deadline.h"
#include "rendezvous/store/store.h"

namespace ddprun {

// Watches a key of the store, on a thread of its own: once it is set, or the deadline has passed, or the store has
// failed, calls on_end with whether it is set and a text that says which; `late` is that of the deadline. on_end is
// called at most once, and not after the destructor.
//
// Ownership: owns its thread, and its connection to the store, which that thread makes. Threads: construct and destroy
// in one thread; connect and on_end are called in the watch's. Errors: none; what connect or the store throws is passed
// to on_end.
class PlanWatch {
 public:
  using OnEnd = std::function<void(bool set, const std::string& why)>;
  // connect: makes the watch's connection to the store, until the deadline has passed or a stop is requested.
  using Connect = std::function<std::shared_ptr<Store>(Deadline deadline, const std::stop_token& stop)>;
  PlanWatch(Connect connect, std::string key, Deadline deadline, std::string late, OnEnd on_end);
  ~PlanWatch();
  PlanWatch(const PlanWatch&) = delete;
  PlanWatch& operator=(const PlanWatch&) = delete;

 private:
  void run(const std::stop_token& stop);
  bool is_set(Store& store);

  const Connect connect_;
  const std::string key_;
  const Deadline deadline_;
  const std::string late_;
  const OnEnd on_end_;
  std::jthread thread_;  // the last member, since it uses the others
};

}  // namespace ddprun
