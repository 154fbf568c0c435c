#include "worker/parallel/forms/data/sync_batch_norm.h"

#include "worker/comm/collectives.h"

namespace ddprun {
namespace {

std::vector<nn::BatchNorm*> batch_norms(nn::Module& model) {
  std::vector<nn::BatchNorm*> layers;
  model.for_each_module([&](nn::Module& module) {
    if (auto* layer = dynamic_cast<nn::BatchNorm*>(&module)) layers.push_back(layer);
  });
  return layers;
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(nn::Module& model, ProcessGroup& group) : layers_(batch_norms(model)) {
  for (auto* layer : layers_)
    layer->set_sum_over_ranks([&group](std::vector<double>& values) { allreduce(group, values); });
}

SyncBatchNorm::~SyncBatchNorm() {
  for (auto* layer : layers_) layer->set_sum_over_ranks({});
}

}  // namespace ddprun
