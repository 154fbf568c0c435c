#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ddprun/worker/comm/execution/cached_thread_pool.h"
#include "ddprun/worker/comm/execution/group_health.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/transfer_numbers.h"

namespace ddprun::comm {

// The sends and receives of a group: begun in the order of their calls, each waited for by a thread of its own.
// Thread-safe. The destructor returns when all are over.
class MessageExecutor {
 public:
  MessageExecutor(Transport& transport, GroupHealth& health) : transport_(transport), health_(health) {}

  // The work fails at once when the group is broken; where no thread can be made for it, that breaks the group.
  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<Transfer> start(const Call& call);
  void finish(std::shared_ptr<Transfer> transfer, const Operation& operation, std::uint64_t number,
              std::chrono::milliseconds timeout, Completion& work);
  void give_up(std::shared_ptr<Transfer> transfer, const Operation& operation, const char* why, Completion& work);

  Transport& transport_;
  GroupHealth& health_;
  std::mutex mutex_;  // orders the starts: transfers of one tag match in the order of the calls; guards what follows
  TransferNumbers numbers_;
  CachedThreadPool pool_;
};

}  // namespace ddprun::comm
