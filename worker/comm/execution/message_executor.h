#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ddprun/worker/comm/execution/cached_thread_pool.h"
#include "ddprun/worker/comm/execution/executor.h"
#include "ddprun/worker/comm/operations/transfer_numbers.h"

namespace ddprun::comm {

// Executes sends and receives: the caller's thread starts them, in the order of the calls, and a thread of the pool
// waits for each. A call for which no thread can be created breaks the group.
class MessageExecutor final : public Executor {
 public:
  MessageExecutor(Transport& transport, GroupHealth& health) : transport_(transport), health_(health) {}

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void cancel(const Error&) override {}  // all are started: they fail as the transport is interrupted
  void shutdown() override { pool_.shutdown(); }

 private:
  std::shared_ptr<Transfer> start(const Call& call);
  void finish(std::shared_ptr<Transfer> transfer, const Operation& operation, std::uint64_t number,
              std::chrono::milliseconds timeout, Completion& work);
  void fail_unwaited(std::shared_ptr<Transfer> transfer, const Operation& operation, const char* why, Completion& work);

  Transport& transport_;
  GroupHealth& health_;
  std::mutex mutex_;  // orders the starts, as messages of one tag match in the order of the calls; guards what follows
  TransferNumbers numbers_;
  CachedThreadPool pool_;
};

}  // namespace ddprun::comm
