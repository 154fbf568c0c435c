#include "worker/comm/backends/local/dry_group.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/address_space.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/operations/completion.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t most_bytes_of_result = 1 << 20;

void copy(ConstSpan from, Span to) {
  const std::size_t bytes = std::min(from.bytes(), to.bytes());
  if (bytes > 0 && from.data != to.data) std::memmove(to.data, from.data, bytes);
}

class DryGroup final : public ProcessGroup {
 public:
  DryGroup(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "dry"; }
  bool reduces_elements_alike(const Call&) const override { return true; }

  WorkPtr start(const Call& call) override {
    const std::lock_guard lock(mutex_);
    if (cause_) return failed_work(*cause_);
    if (!call.operation.coalesced())
      execute(call);
    else if (call.operation.kind == OpKind::allreduce || call.operation.kind == OpKind::broadcast)
      copy_each(*call.layout);
    return completed_work();
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string&) override {
    const auto own = std::ranges::find(ranks, rank_);
    return make_dry_group(static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
  }

  RegisteredBuffer allocate(std::size_t bytes) override { return {reserve_address_space(bytes), bytes}; }

  std::optional<Error> failure() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = Error(Errc::aborted, reason);
  }

 private:
  static void copy_each(const Layout& layout) {
    for (std::size_t i = 0; i < layout.inputs.size(); ++i)
      if (layout.outputs[i].bytes() <= most_bytes_of_result) copy(layout.inputs[i], layout.outputs[i]);
  }

  void execute(const Call& call) const {
    if (call.output.bytes() > most_bytes_of_result) return;
    const bool is_root = call.operation.peer == rank_;
    switch (call.operation.kind) {
      case OpKind::allreduce:
      case OpKind::broadcast:
        return copy(call.input, call.output);
      case OpKind::reduce_scatter:
        return copy(call.input_part(rank_), call.output);
      case OpKind::allgather:
        return copy_to_parts(call, call.input);
      case OpKind::all_to_all:
        return copy_to_parts(call, call.input_part(rank_));
      case OpKind::reduce:
        if (is_root) copy(call.input, call.output);
        return;
      case OpKind::gather:
        if (is_root) copy_to_parts(call, call.input);
        return;
      case OpKind::scatter:
        if (is_root) copy(call.input_part(rank_), call.output);
        return;
      case OpKind::barrier:
      case OpKind::send:
      case OpKind::recv:
        return;
    }
  }

  void copy_to_parts(const Call& call, ConstSpan from) const {
    for (int r = 0; r < size_; ++r) copy(from, call.output_part(r));
  }

  const int rank_, size_;
  mutable std::mutex mutex_;
  std::optional<Error> cause_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_dry_group(int rank, int size) {
  return std::make_unique<DryGroup>(rank, size);
}

}  // namespace ddprun::comm
