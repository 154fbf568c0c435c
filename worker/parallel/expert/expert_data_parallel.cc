#include "ddprun/worker/parallel/expert/expert_data_parallel.h"

#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/subgroups.h"
#include "ddprun/worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

// Returns the parameters of experts, or the others of the model.
std::vector<std::pair<std::string, Variable>> parameters(const nn::Module& model, const SlicedTensors& parts,
                                                         bool of_experts) {
  auto all = model.named_parameters();
  std::erase_if(all, [&](const auto& each) { return parts.divides(each.first) != of_experts; });
  return all;
}

DdpOptions options_for(const nn::Module& model, const SlicedTensors& parts, bool of_experts,
                       const BucketLimits& limits) {
  DdpOptions options{.limits = limits};
  for (const auto& [name, parameter] : parameters(model, parts, !of_experts))
    options.ignored_parameters.push_back(name);
  if (of_experts)
    for (const auto& [name, buffer] : model.named_buffers()) options.ignored_parameters.push_back(name);
  return options;
}

}  // namespace

ExpertDataParallel::ExpertDataParallel(nn::Module& model, ExpertParallel& experts, ProcessGroup& replicas,
                                       ProcessGroup& all, const BucketLimits& limits)
    : model_(model),
      experts_(experts),
      replicas_(replicas),
      all_(all),
      own_group_(&experts.group().group() == &all ? split(all, 0, all.rank()) : nullptr),
      of_experts_(model, replicas, options_for(model, experts.parts(), true, limits)),
      others_(model, own_group_ ? *own_group_ : all, options_for(model, experts.parts(), false, limits)) {
  // The gradient of an expert at one rank already includes the tokens of its whole group.
  const double share = 1.0 / all.size();
  of_experts_.register_comm_hook([&replicas, share](const GradBucket& bucket) {
    return replicas.allreduce(bucket.span, Reduction::premultiplied_sum(share));
  });
}

void ExpertDataParallel::prepare_forward() {
  of_experts_.prepare_forward();
  others_.prepare_forward();
}

Variable ExpertDataParallel::forward(const Variable& input) {
  prepare_forward();
  return model_(input);
}

void ExpertDataParallel::join_pass() {
  throw Error(Errc::unsupported, "a rank whose experts are divided makes every pass");
}

void ExpertDataParallel::join_backward() {
  of_experts_.join_backward();
  others_.join_backward();
}

std::shared_ptr<void> ExpertDataParallel::hold_reduction() {
  return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(of_experts_.hold_reduction(),
                                                                                   others_.hold_reduction());
}

void ExpertDataParallel::visit_parameters(const Visitor& visit) {
  for (const auto& [name, parameter] : model_.named_parameters()) visit(name, parameter.value());
}

void ExpertDataParallel::distribute_model() {
  for (const bool of_experts : {true, false}) {
    const auto own = parameters(model_, experts_.parts(), of_experts);
    broadcast(of_experts ? replicas_ : all_, references(own));
    for (const auto& [name, parameter] : own) parameter.value().storage()->bump_version();
  }
  sync_buffers();
}

void ExpertDataParallel::record_transfers(std::vector<Transfer>* into) {
  of_experts_.record_transfers(into);
  others_.record_transfers(into);
}

}  // namespace ddprun
