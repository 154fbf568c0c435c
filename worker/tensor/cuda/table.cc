#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {

kernels::Table make_table() {
  const DeviceApi& api = cuda::api();
  kernels::Table table;
  add_elementwise(api, table);
  add_copies(api, table);
  add_reductions(api, table);
  add_indexing(api, table);
  add_matrix_products(api, table);
  add_convolutions(api, table);
  add_pooling(api, table);
  add_normalization(api, table);
  add_losses(api, table);
  add_attention(api, table);
  add_quantized_products(table);
  add_optimizers(api, table);
  return table;
}

}  // namespace ddprun::cuda
