#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/store/store.h"

namespace ddprun::trainer {

// Watches for a key of the store, on a thread of its own: once it is set, or the deadline has passed, calls on_end with
// a sentence that says which. on_end is called at most once, and not after the destructor.
//
// Ownership: owns its connection to the store. Errors: a store that fails ends the watch without a call.
class PlanWatch {
 public:
  PlanWatch(std::shared_ptr<Store> store, std::string key, Deadline deadline,
            std::function<void(const std::string& why)> on_end);
  ~PlanWatch();
  PlanWatch(const PlanWatch&) = delete;
  PlanWatch& operator=(const PlanWatch&) = delete;

 private:
  void run(const std::stop_token& stop);
  bool is_set();

  const std::shared_ptr<Store> store_;
  const std::string key_;
  const Deadline deadline_;
  const std::function<void(const std::string& why)> on_end_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace ddprun::trainer
