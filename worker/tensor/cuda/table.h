#pragma once

#include "worker/tensor/cuda/view.h"
#include "worker/tensor/kernels.h"

namespace ddprun::cuda {

// The operations of CUDA devices: results are allocated here, the module computes them. Errors: those of api().
kernels::Table make_table();

void add_elementwise(const DeviceApi& api, kernels::Table& table);
void add_copies(const DeviceApi& api, kernels::Table& table);
void add_reductions(const DeviceApi& api, kernels::Table& table);
void add_indexing(const DeviceApi& api, kernels::Table& table);
void add_matrix_products(const DeviceApi& api, kernels::Table& table);
void add_convolutions(const DeviceApi& api, kernels::Table& table);
void add_pooling(const DeviceApi& api, kernels::Table& table);
void add_normalization(const DeviceApi& api, kernels::Table& table);
void add_losses(const DeviceApi& api, kernels::Table& table);
void add_attention(const DeviceApi& api, kernels::Table& table);
void add_quantized_products(kernels::Table& table);
void add_optimizers(const DeviceApi& api, kernels::Table& table);

// Fills an entry if the module has what it calls; else the entry refuses.
template <class Entry, class Function, class... Needed>
void offer(Entry& entry, Function* function, Needed*... needed) {
  if ((... && (needed != nullptr))) entry = function;
}

}  // namespace ddprun::cuda
