#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "worker/comm/work.h"

namespace ddprun {

// The operations of a hook that needs several for a bucket, one after the other: an operation, a function of its result
// that starts the next, and so on. The first wait() of a pass runs the second stage of all buckets in order, then their
// third, until all are complete: the same order at every rank, with one bucket's computation beside another's transfer.
//
//   auto work = stages_.add(group.all_to_all(...), {[=] { return group.allgather(...); },
//                                                   [=] { decode(...); return WorkPtr(); }});
//
// Ownership: works may outlive this object; what the functions refer to may not, unless cancel() was called.
// Threads: one at a time. Errors: the error of the first operation or function that fails, at every wait().
class BucketStages {
 public:
  // Runs when the operation before has finished. Starts the next and returns it; none if there is nothing to wait for.
  using Stage = std::function<WorkPtr()>;

  BucketStages();
  // first: null if there is nothing to wait for.
  WorkPtr add(WorkPtr first, std::vector<Stage> stages);
  // Runs no further function: works end with Errc::aborted once the operations in progress have ended.
  void cancel();

 private:
  class Queue;
  class BucketWork;
  std::shared_ptr<Queue> queue_;
};

}  // namespace ddprun
