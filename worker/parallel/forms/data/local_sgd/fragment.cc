#include "worker/parallel/forms/data/local_sgd/fragment.h"

#include <utility>

#include "common/error.h"
#include "worker/parallel/group_tensors.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

void scale_in_place(Tensor& tensor, double factor) {
  kernels::of(tensor).unary(kernels::Unary::scale, {.a = factor}, tensor, tensor);
}

}  // namespace

Fragment::Fragment(std::vector<Member> members, const OuterOptions& options, bool delayed)
    : options_(options), delayed_(delayed) {
  for (Member& member : members) {
    Part part{.member = std::move(member), .average = {}, .exchanged = {}, .momentum = {}};
    const Tensor& tensor = part.member.tensor;
    part.average = delayed ? tensor.clone() : tensor;
    if (part.member.trained && options.updates()) {
      part.exchanged = tensor.clone();
      part.momentum = Tensor::zeros_like(tensor);
    }
    parts_.push_back(std::move(part));
  }
}

Fragment::~Fragment() {
  if (!averaging_) return;
  try {
    averaging_->wait();
  } catch (const Error&) {
    // Nobody needs this average any more.
  }
}

void Fragment::begin(ProcessGroup& group) {
  std::vector<Span> spans;
  for (Part& part : parts_) {
    if (delayed_) part.average.copy_from(part.member.tensor);
    spans.push_back(span_of_tensor(part.average));
  }
  if (spans.empty()) return;
  averaging_ = group.allreduce_coalesced(
      spans, ReduceOp::average,
      {.blocking = !delayed_, .after = compute_stream(parts_.front().member.tensor.device())});
}

void Fragment::end() {
  if (averaging_) averaging_->wait();
  averaging_ = nullptr;
  for (Part& part : parts_) {
    update(part);
    part.member.tensor.storage()->bump_version();
  }
}

void Fragment::update(Part& part) const {
  Tensor& tensor = part.member.tensor;
  Tensor result = part.average;
  if (part.exchanged.defined()) {
    const Tensor gradient = kernels::add(part.exchanged, kernels::scale(part.average, -1));
    scale_in_place(part.momentum, options_.momentum);
    kernels::add_in_place(part.momentum, gradient);
    const Tensor direction = kernels::add(gradient, kernels::scale(part.momentum, options_.momentum));
    kernels::add_in_place(part.exchanged, kernels::scale(direction, -options_.lr));
    result = part.exchanged;
  }
  const double own = part.member.trained && delayed_ ? options_.fragment_update_alpha : 0;
  if (own == 0) {
    if (result.raw() != tensor.raw()) tensor.copy_from(result);
    return;
  }
  scale_in_place(tensor, own);
  kernels::add_in_place(tensor, kernels::scale(result, 1 - own));
}

void Fragment::restart() {
  for (Part& part : parts_)
    if (part.exchanged.defined()) part.exchanged.copy_from(part.member.tensor);
}

void Fragment::add_state(const std::string& prefix, std::vector<HookState>& state) {
  if (averaging_) averaging_->wait();
  for (Part& part : parts_) {
    const std::string name = prefix + part.member.name;
    if (delayed_) state.push_back({name + "/average", span_of_tensor(part.average)});
    if (!part.exchanged.defined()) continue;
    state.push_back({name + "/exchanged", span_of_tensor(part.exchanged)});
    state.push_back({name + "/momentum", span_of_tensor(part.momentum)});
  }
}

}  // namespace ddprun
