#pragma once

#include "worker/tensor/cuda/device_api.h"

namespace ddprun::cuda {

// Add the entries of a table, by the source files that have them.
void add_devices(DeviceApi& api);
void add_memory(DeviceApi& api);
void add_order(DeviceApi& api);
void add_elementwise(DeviceApi& api);
void add_reductions(DeviceApi& api);
void add_indexing(DeviceApi& api);
void add_losses(DeviceApi& api);
void add_optimizers(DeviceApi& api);
void add_products(DeviceApi& api);
void add_convolutions(DeviceApi& api);
void add_pooling(DeviceApi& api);
void add_batch_norm(DeviceApi& api);
void add_attention(DeviceApi& api);
void add_group_norm(DeviceApi& api);

}  // namespace ddprun::cuda
