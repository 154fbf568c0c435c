#include "worker/parallel/forms/expert/expert_parallel.h"

#include "common/error.h"
#include "worker/parallel/forms/expert/token_exchange.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

std::vector<nn::MixtureOfExperts*> layers_for(nn::Module& model, int ranks) {
  auto layers = mixtures_of_experts(model);
  if (layers.empty()) throw make_error(Errc::usage, "expert parallelism: the model has no experts");
  for (const auto* layer : layers)
    if (layer->options().experts % ranks != 0)
      throw make_error(Errc::usage, "expert parallelism: {} experts are no multiple of {} ranks",
                       layer->options().experts, ranks);
  return layers;
}

// Experts' parameters are the modules c_fc and c_proj of a layer.
std::vector<std::string> parameters_of_experts(nn::Module& model, const std::vector<nn::MixtureOfExperts*>& layers) {
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : model.named_parameters())
    for (const auto* layer : layers)
      for (const auto& [name, own] : layer->named_parameters())
        if (own.is(parameter) && !name.starts_with("router.")) paths.push_back(path);
  return paths;
}

}  // namespace

std::vector<nn::MixtureOfExperts*> mixtures_of_experts(nn::Module& model) {
  std::vector<nn::MixtureOfExperts*> layers;
  model.for_each_module([&](nn::Module& module) {
    if (auto* layer = dynamic_cast<nn::MixtureOfExperts*>(&module)) layers.push_back(layer);
  });
  return layers;
}

ExpertParallel::ExpertParallel(nn::Module& model, ProcessGroup& group, ProcessGroup& routing)
    : group_(group), routing_(routing), shards_("expert", group), layers_(layers_for(model, group.size())) {
  align_ranks(group, model.named_parameters(), model.named_buffers());
  for (const auto& path : parameters_of_experts(model, layers_)) shards_.shard(model, path, 0);
  for (auto* layer : layers_) layer->set_exchange(this);
}

ExpertParallel::~ExpertParallel() {
  for (auto* layer : layers_) layer->set_exchange(nullptr);
}

nn::ExpertCounts ExpertParallel::total(const nn::ExpertCounts& own) {
  nn::ExpertCounts sum = own;
  routing_.allreduce(span_of(sum), ReduceOp::sum, {.blocking = true});
  return sum;
}

Variable ExpertParallel::run(const Variable& rows, const nn::ExpertCounts& counts, const Compute& compute) {
  const ExpertRoutes routes = routes_of(counts, group_);
  return return_from_experts(compute(send_to_experts(rows, routes, group_), routes.own), routes, group_);
}

}  // namespace ddprun
