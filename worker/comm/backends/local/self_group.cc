#include "worker/comm/backends/local/self_group.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "worker/comm/memory/segment_reserve.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/operations/completion.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// Every operation copies the input to the output; a premultiplied sum multiplies it.
void copy_input(const Operation& operation, ConstSpan input, Span output) {
  if (operation.reduces() && needs_preparation(operation.op)) {
    std::vector<std::byte> values(input.count * size_of(prepared_type(input.dtype)));
    prepare_reduction(operation.factor, input, values.data());
    finish_prepared(values.data(), output);
  } else if (input.bytes() > 0 && input.data != output.data) {
    std::memmove(output.data, input.data, input.bytes());
  }
}

void execute(const Call& call) {
  if (!call.operation.coalesced()) return copy_input(call.operation, call.input, call.output);
  const auto& [input_parts, output_parts, inputs, outputs] = *call.layout;
  for (std::size_t i = 0; i < inputs.size(); ++i) copy_input(call.operation, inputs[i], outputs[i]);
}

class SelfGroup : public ProcessGroup {
 public:
  explicit SelfGroup(std::shared_ptr<SegmentReserve> segments) : segments_(std::move(segments)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "self"; }
  bool reduces_elements_alike(const Call&) const override { return true; }

  WorkPtr start(const Call& call) override {
    const std::lock_guard lock(mutex_);
    if (cause_) return failed_work(*cause_);
    execute(call);
    return completed_work();
  }

  RegisteredBuffer allocate(std::size_t bytes) override {
    if (!segments_) return ProcessGroup::allocate(bytes);
    const auto segment = std::make_shared<SharedSegment>(segments_->take(whole_pages(bytes)));
    return {std::shared_ptr<std::byte>(segment, segment->data()), bytes};
  }
  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>&, const std::string&) override {
    return make_self_group();
  }

  std::optional<Error> failure() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = Error(Errc::aborted, reason);
  }

 private:
  const std::shared_ptr<SegmentReserve> segments_;
  mutable std::mutex mutex_;
  std::optional<Error> cause_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_self_group(std::shared_ptr<SegmentReserve> segments) {
  return std::make_unique<SelfGroup>(std::move(segments));
}

}  // namespace ddprun::comm
