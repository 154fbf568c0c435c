#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/bucketing.h"
#include "worker/reducer/comm_hook.h"
#include "worker/reducer/transfer.h"

namespace ddprun {

struct ReducerOptions {
  BucketLimits limits;
  // If false, a parameter that a backward pass did not reach is an error naming it. If true, its gradient counts as it
  // is, zero unless something was accumulated before; used() tells which parameters some rank did use, at the cost of
  // one more small allreduce per pass.
  bool find_unused_parameters = false;
  // At each rank, every reduced pass reaches the parameters that the first one reached: the others are known from then
  // on, as with find_unused_parameters, and no later pass has to exchange them. A pass that differs is an error.
  bool static_graph = false;
  // Parameters, by index, whose buckets start after all others, and not before the gradient of delay_until is ready.
  std::vector<std::size_t> delayed;
  std::optional<std::size_t> delay_until;
  // The parameters, by index, that have a bucket each.
  std::vector<std::size_t> alone;
  // Parameters, by index, that share no bucket with others.
  std::vector<std::size_t> apart;
  // A number in the memory of the gradients' device. If it is set, finalize() does not wait for gradients there: what
  // their stream gets from then on begins once they are averaged, or finds the number to be 1 (Work::order()).
  float* cancelled = nullptr;
  // Allocates zeroed memory for buckets; if empty, the group's allocate_on() does. Only the constructor calls it.
  std::function<RegisteredBuffer(std::int32_t device, std::size_t bytes)> allocate;
};

// Averages gradients over the ranks of a group while the backward pass is still running. Knows a parameter as name,
// shape and type, not which engine made it.
//
// The engine accumulates gradients into gradient_memory(), which lies in the reducer's buckets. A hook makes averages
// of a bucket once all its parameters are ready and all buckets before it have started, so every rank starts the same
// operations in the same order, whatever the order in which its gradients become ready. Without a hook of the caller's
// that is one allreduce for each bucket.
//
// In a reduced pass mark_ready() is called once per parameter, then finalize(). A pass that only accumulates calls
// neither; the next reduced pass sends the sum.
//
// Ownership: the group must outlive the reducer; gradient_memory() may outlive it. Threads: one at a time. Errors:
// those of the group come out of finalize(); after any error the reducer cannot be used again.
class Reducer {
 public:
  // group must outlive the reducer. Only the parameters' names, shapes and types are looked at.
  Reducer(ProcessGroup& group, const std::vector<ParameterRef>& parameters, const ReducerOptions& options = {});
  ~Reducer();  // waits for operations in progress: they use the buckets
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Sets the hook from the next pass on. Throws Errc::usage within a pass.
  void set_hook(std::unique_ptr<CommHook> hook);
  CommHook& hook() { return *hook_; }

  // The memory is initially zero, aligned to 64 bytes, allocated from the group. The pointer keeps it alive.
  std::shared_ptr<void> gradient_memory(std::size_t parameter) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Tells that a pass that is not reduced has reached a parameter: it counts as used in the next reduced pass.
  void mark_used(std::size_t parameter) { used_.at(parameter) = 1; }
  // Tells that a parameter's gradient is complete. Throws Errc::usage, naming it, if it was marked before in this pass.
  void mark_ready(std::size_t parameter);
  // Ends the pass: waits until all gradients are averaged. Throws Errc::usage, naming the parameters that are not
  // ready, unless find_unused_parameters or the first pass of a static_graph.
  //
  // The host waits for gradients on a device too, unless it has ReducerOptions::cancelled: when their reduction is
  // aborted, a device continues with what is queued behind it, and would update the weights with what is no average.
  // With it the next pass waits, before it starts a reduction; the group's errors come out there, too.
  void finalize();
  // Returns whether finalize() leaves it to the device to wait.
  bool device_waits() const { return options_.cancelled != nullptr && !transfers_; }

  // Makes a whole pass of a rank that has no gradients for it: reduces the contents of the buckets.
  void join_pass();

  // Returns whether any rank used a parameter in the last reduced pass, or in a pass accumulated into it; with
  // static_graph, in the first. All are used without find_unused_parameters and static_graph.
  bool used(std::size_t parameter) const { return used_anywhere_.at(parameter) != 0; }

  // Returns the total time that finalize() has waited for other ranks and the network.
  std::chrono::nanoseconds waited() const { return waited_; }
  // Returns the total time that this rank has spent on starting the reduction of buckets.
  std::chrono::nanoseconds starting() const { return starting_; }
  // From the next pass on, the reductions of a pass's buckets are appended at its end to `into`, unless that is null.
  // `into` outlives this object or the next call.
  void record_transfers(std::vector<Transfer>* into) { transfers_ = into; }

 private:
  struct ParameterState {
    std::size_t bucket = 0;
    std::size_t slice = 0;
    bool ready = false;
    bool expected = true;  // true if a pass cannot end before it is ready
  };
  void check_usable() const;
  void check_ready(std::size_t parameter);
  bool may_leave_out() const { return options_.find_unused_parameters || (options_.static_graph && !graph_known_); }
  void learn_graph();
  void expect_parameters();
  bool is_delayed(const Bucket& bucket) const;
  void describe_buckets();
  void start_ready_buckets();
  void start_all_buckets();
  void end_pass();
  std::string unready_names() const;
  void wait_for(std::vector<WorkPtr>& works);
  void let_device_wait();
  void clear_padding();
  void record_started(std::size_t bucket);
  void record_ended();

  ProcessGroup& group_;
  const ReducerOptions options_;
  const std::vector<Bucket> buckets_;
  const std::vector<ParameterRef> parameters_;
  const std::int32_t device_;                   // the gradients' device
  std::vector<ParameterState> states_;          // by parameter
  std::vector<std::uint8_t> used_;              // by parameter: 1 if this rank used it since the last reduced pass
  std::vector<std::uint8_t> used_anywhere_;     // by parameter: 1 if any rank used it
  std::vector<std::shared_ptr<void>> memory_;   // by bucket
  std::vector<std::vector<GradSlice>> slices_;  // by bucket
  std::vector<GradBucket> grad_buckets_;        // as the hook sees them
  std::unique_ptr<CommHook> hook_;
  std::vector<std::size_t> missing_;  // by bucket: parameters not ready yet
  std::size_t next_ = 0;              // the next bucket to start
  std::vector<WorkPtr> works_;        // one per started bucket
  std::vector<WorkPtr> last_works_;   // those of the last pass, if the device waited for them
  bool graph_known_ = false;          // static_graph: this rank's first reduced pass is over
  bool use_known_ = false;            // static_graph: the use by some rank is known
  bool failed_ = false;
  std::chrono::nanoseconds waited_{};
  std::chrono::nanoseconds starting_{};
  std::vector<Transfer>* transfers_ = nullptr;
  std::vector<Transfer> pass_;  // those of this pass, by bucket
  std::size_t ended_ = 0;       // the number of them that have ended, in order
};

}  // namespace ddprun
