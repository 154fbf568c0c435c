#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "ddprun/worker/comm/call/call.h"
#include "ddprun/worker/comm/transport/elastic_pool.h"
#include "ddprun/worker/comm/transport/group_health.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// The sends and receives of a group: begun in the order of their calls, each waited for by a thread of its own.
// Thread-safe. The destructor returns when all are over.
class TransferExecutor {
 public:
  TransferExecutor(Transport& transport, GroupHealth& health) : transport_(transport), health_(health) {}

  // The work fails at once when the group is broken.
  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<Transfer> start(const Call& call);
  std::uint64_t take_number(const Operation& operation);
  void finish(std::shared_ptr<Transfer> transfer, const Operation& operation, std::uint64_t number,
              std::chrono::milliseconds timeout, Completion& work);

  Transport& transport_;
  GroupHealth& health_;
  std::mutex mutex_;  // orders the starts: transfers of one tag match in the order of the calls; guards what follows
  std::map<std::tuple<OpKind, int, int>, std::uint64_t> numbers_;  // the last ones, by peer and tag
  std::set<int> tags_from_any_;                                    // of receives that may have taken any rank's number
  ElasticPool pool_;
};

}  // namespace ddprun::comm
