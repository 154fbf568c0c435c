#pragma once

#include "worker/tensor/kernels.h"

namespace ddprun::cpu {

// All operations of cpu devices. Each source file of this folder fills in its rows.
kernels::Table make_table();

void add_elementwise(kernels::Table& table);
void add_copies(kernels::Table& table);
void add_reductions(kernels::Table& table);
void add_indexing(kernels::Table& table);
void add_matrix_products(kernels::Table& table);
void add_convolutions(kernels::Table& table);
void add_pooling(kernels::Table& table);
void add_normalization(kernels::Table& table);
void add_losses(kernels::Table& table);
void add_attention(kernels::Table& table);
void add_quantized_products(kernels::Table& table);
void add_optimizers(kernels::Table& table);

}  // namespace ddprun::cpu
