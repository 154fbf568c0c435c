#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/views.h"

// The driver of kernels that treat many tensors alike: a table of them is a kernel's argument, so nothing is copied to
// the device first. The tensors are cut into chunks, and a block has a chunk at a time.
namespace ddprun::cuda {

// This is a multiple of every pack, so that all chunks of a tensor are aligned as its first one.
inline constexpr std::int64_t chunk_elements = 8192;

// This leaves room for a kernel's other arguments in the 4 KB that all devices have.
inline constexpr std::size_t most_table_bytes = 3712;

// Tensors of one type, `operands` of them side by side.
template <int operands>
struct TensorTable {
  static constexpr int capacity =
      static_cast<int>((most_table_bytes - 16) / ((operands + 1) * sizeof(std::int64_t) + sizeof(int)));

  void* data[operands][capacity];
  std::int64_t counts[capacity];
  int chunks_up_to[capacity];  // the chunks of a tensor and those before it
  int tensors = 0;

  __host__ __device__ int chunks() const { return tensors == 0 ? 0 : chunks_up_to[tensors - 1]; }
};

// Calls visit(tensor, first, count, chunk) for each chunk of this block: elements first to first + count of a tensor.
template <int operands, class Visit>
__device__ void for_each_chunk(const TensorTable<operands>& table, const Visit& visit) {
  const int chunks = table.chunks();
  for (int chunk = static_cast<int>(blockIdx.x); chunk < chunks; chunk += static_cast<int>(gridDim.x)) {
    int tensor = 0;
    for (int above = table.tensors - 1; tensor < above;) {
      const int middle = (tensor + above) / 2;
      if (chunk < table.chunks_up_to[middle])
        above = middle;
      else
        tensor = middle + 1;
    }
    const int before = tensor == 0 ? 0 : table.chunks_up_to[tensor - 1];
    const std::int64_t first = (chunk - before) * chunk_elements;
    const std::int64_t rest = table.counts[tensor] - first;
    visit(tensor, first, rest < chunk_elements ? rest : std::int64_t{chunk_elements}, chunk);
  }
}

// The lists of a call, each of `count` views.
template <int operands>
struct TensorLists {
  std::size_t count;
  const View* lists[operands];

  std::int64_t chunks() const {
    std::int64_t sum = 0;
    for (const View& view : std::span(lists[0], count)) sum += divide_up(element_count(view), chunk_elements);
    return sum;
  }

  // Calls launch(table, dtype) for as many tables as the tensors need: of neighbours of one type each, in their order.
  template <class Launch>
  void for_each_table(const Launch& launch) const {
    TensorTable<operands> table;
    static_assert(sizeof(table) <= most_table_bytes);
    DType dtype = DType::float32;
    const auto flush = [&] {
      if (table.tensors > 0) launch(std::as_const(table), dtype);
      table.tensors = 0;
    };
    for (std::size_t i = 0; i < count; ++i) {
      const View& view = lists[0][i];
      const std::int64_t elements = element_count(view);
      if (elements == 0) continue;
      if (table.tensors == table.capacity || view.dtype != dtype) flush();
      dtype = view.dtype;
      for (int k = 0; k < operands; ++k) table.data[k][table.tensors] = lists[k][i].data;
      table.counts[table.tensors] = elements;
      table.chunks_up_to[table.tensors] = table.chunks() + static_cast<int>(divide_up(elements, chunk_elements));
      ++table.tensors;
    }
    flush();
  }
};

}  // namespace ddprun::cuda
