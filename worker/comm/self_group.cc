#include "ddprun/worker/comm/self_group.h"

#include <cstring>
#include <mutex>
#include <optional>

#include "ddprun/worker/comm/completion.h"
#include "ddprun/worker/comm/operation.h"

namespace ddprun::comm {
namespace {

void copy(ConstSpan from, Span to) {
  if (from.bytes() > 0 && from.data != to.data) std::memmove(to.data, from.data, from.bytes());
}

class SelfGroup : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "self"; }

  WorkPtr allreduce(Span buffer, ReduceOp op, OpOptions) override {
    checked_allreduce(buffer, op);
    return result();
  }
  WorkPtr broadcast(Span buffer, int root, OpOptions) override {
    checked_broadcast(buffer, root, 1);
    return result();
  }
  WorkPtr allgather(ConstSpan input, Span output, OpOptions) override {
    checked_allgather(input, output, 1);
    return result([&] { copy(input, output); });
  }
  WorkPtr reduce_scatter(ConstSpan input, Span output, ReduceOp op, OpOptions) override {
    checked_reduce_scatter(input, output, op, 1);
    return result([&] { copy(input, output); });
  }
  WorkPtr barrier(OpOptions) override { return result(); }
  WorkPtr send(ConstSpan buffer, int destination, int tag, OpOptions) override {
    checked_send(buffer, destination, tag, 0, 1);
    return result();
  }
  WorkPtr recv(Span buffer, int source, int tag, OpOptions) override {
    checked_recv(buffer, source, tag, 0, 1);
    return result();
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = Error(Errc::aborted, reason);
  }

 private:
  WorkPtr result() {
    return result([] {});
  }
  template <class Action>
  WorkPtr result(Action action) {
    const std::lock_guard lock(mutex_);
    if (cause_) return failed_work(*cause_);
    action();
    return completed_work();
  }

  std::mutex mutex_;
  std::optional<Error> cause_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_self_group() {
  return std::make_unique<SelfGroup>();
}

}  // namespace ddprun::comm
