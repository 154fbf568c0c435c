#include "worker/tensor/cpu/table.h"

namespace ddprun::cpu {

kernels::Table make_table() {
  kernels::Table table;
  add_elementwise(table);
  add_copies(table);
  add_reductions(table);
  add_indexing(table);
  add_matrix_products(table);
  add_convolutions(table);
  add_pooling(table);
  add_normalization(table);
  add_losses(table);
  add_attention(table);
  add_quantized_products(table);
  add_optimizers(table);
  return table;
}

}  // namespace ddprun::cpu
