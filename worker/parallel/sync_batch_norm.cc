#include "ddprun/worker/parallel/sync_batch_norm.h"

#include <string_view>

#include "ddprun/worker/comm/collectives.h"

namespace ddprun {
namespace {

// A batch norm is found by its buffer.
std::vector<nn::BatchNorm*> batch_norms(nn::Module& model) {
  constexpr std::string_view buffer = "running_mean";
  std::vector<nn::BatchNorm*> layers;
  for (const auto& [path, tensor] : model.named_buffers()) {
    if (!path.ends_with(buffer)) continue;
    const auto length = path.size() - buffer.size();
    auto& module = model.module(path.substr(0, length == 0 ? 0 : length - 1));
    if (auto* layer = dynamic_cast<nn::BatchNorm*>(&module)) layers.push_back(layer);
  }
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
