#include "worker/tensor/cuda/module/groups.h"

namespace ddprun::cuda {
namespace {

DeviceApi make_api() {
  DeviceApi api{};
  api.version = interface_version;
  add_devices(api);
  add_memory(api);
  add_order(api);
  add_elementwise(api);
  add_reductions(api);
  add_indexing(api);
  add_losses(api);
  add_optimizers(api);
  add_products(api);
  add_convolutions(api);
  add_pooling(api);
  add_batch_norm(api);
  add_attention(api);
  add_group_norm(api);
  return api;
}

}  // namespace
}  // namespace ddprun::cuda

extern "C" __attribute__((visibility("default"))) const ddprun::cuda::DeviceApi* ddprun_cuda_device_api() {
  static const ddprun::cuda::DeviceApi api = ddprun::cuda::make_api();
  return &api;
}
