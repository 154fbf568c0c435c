#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/span.h"
#include "worker/comm/work.h"

namespace ddprun {

// The gradient of one parameter within a bucket.
struct GradSlice {
  std::string_view name;
  std::span<const std::int64_t> shape;
  std::size_t offset = 0;  // elements from the start of the bucket
  std::size_t count = 0;
};

// A bucket of gradients as a hook sees it. Between two slices lies padding, which is zero; what a hook leaves there
// does not matter.
struct GradBucket {
  std::size_t index = 0;
  Span span;  // all of it, padding included
  std::span<const GradSlice> slices;
  void* after = nullptr;  // OpOptions::after of an operation on the bucket
  bool last = false;      // true if it ends a pass: that has buckets 0 to this one
};

// State that a hook keeps from one pass to the next, and a checkpoint with it. Writing the memory restores the state.
// Floats may differ between ranks and are meaningful as a mean over ranks; integers are the same at all ranks.
struct HookState {
  std::string name;  // unique in its hook
  Span span;
};

// Turns a bucket of gradients into the average over the ranks: PyTorch's communication hook. It is called with the sums
// that this rank has accumulated; when the work has finished, the bucket holds the average over the ranks, or what the
// hook takes for it, with the same bits at every rank.
//
// A pass calls start() for each bucket in order, while gradients of later ones are still computed, and then wait() on
// the works in that order. A hook that needs several operations for a bucket starts all but the first within wait(),
// never depending on which have finished: so every rank starts the same operations in the same order.
// bucket_stages.h does that.
//
// Ownership: the reducer owns the hook and the buckets; what prepare() was given outlives the hook. A hook refers to
//   its group, which outlives it.
// Threads: one at a time, that of the reducer.
// Errors: those of the group, from start() or from the work. The hook cannot be used afterwards.
class CommHook {
 public:
  virtual ~CommHook() = default;

  // Called once, before the first start(), with all buckets that there are, in the order of their indices. A hook
  // allocates its state here.
  virtual void prepare(std::span<const GradBucket> buckets) { static_cast<void>(buckets); }
  virtual WorkPtr start(const GradBucket& bucket) = 0;
  // Returns whether buckets may be memory of a device, which the host cannot read. Their padding stays zero then.
  virtual bool accepts_devices() const { return false; }
  // Ends the pass with an error at this rank: works start no further operation and end once those in progress have
  // ended.
  virtual void cancel() {}
  // Returns the state, once prepared and between two passes. The memory is the hook's.
  virtual std::vector<HookState> state() { return {}; }
};

// Makes a hook without state from a function.
std::unique_ptr<CommHook> make_comm_hook(std::function<WorkPtr(const GradBucket&)> start);

}  // namespace ddprun
