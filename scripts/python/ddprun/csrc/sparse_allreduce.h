#pragma once

#include <ATen/ATen.h>
#include <algorithm>
#include <cstdint>
#include <vector>

#include "errors.h"
#include "spans.h"

namespace ddprun_torch {

// The sum of one sparse tensor (COO) of each rank, as Gloo computes it: ranks exchange their numbers of elements, then
// indices and values, and all add them up in the order of ranks. The call blocks: the sizes of an exchange are results
// of the one before it.
class SparseAllreduce {
 public:
  SparseAllreduce(ddprun_group* group, int size, std::int64_t limit_ms)
      : group_(group), size_(size), limit_ms_(limit_ms) {}

  at::Tensor sum(const at::Tensor& given) const {
    const auto input = given.coalesce();
    const auto counts = counts_of_ranks(input);
    // Each element has a row, so that the elements of one rank are contiguous.
    const auto indices = gathered(input.indices().t().contiguous(), counts);
    const auto values = gathered(input.values().contiguous(), counts);
    return at::sparse_coo_tensor(indices.t(), values, input.sizes()).coalesce();
  }

 private:
  // Returns how many elements each rank has. Throws where the tensors are not alike.
  std::vector<std::int64_t> counts_of_ranks(const at::Tensor& input) const {
    std::vector<std::int64_t> own{input._nnz(),  input.sparse_dim(),   input.dense_dim(),
                                  input.numel(), input.element_size(), span_to_move(input.values().contiguous()).dtype};
    std::vector<std::int64_t> all(own.size() * size_);
    allgather({own.data(), own.size(), DDPRUN_INT64}, {all.data(), all.size(), DDPRUN_INT64}, nullptr);
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size_; ++rank) {
      const auto* const of_rank = all.data() + rank * own.size();
      counts.push_back(of_rank[0]);
      TORCH_CHECK_VALUE(std::equal(own.begin() + 1, own.end(), of_rank + 1),
                        "ddprun: all_reduce of a sparse tensor: rank ", rank, " has one of another shape or type");
    }
    return counts;
  }

  // Returns the rows of all ranks, of which each has counts[rank].
  at::Tensor gathered(const at::Tensor& own, const std::vector<std::int64_t>& counts) const {
    std::int64_t rows = 0;
    for (const auto count : counts) rows += count;
    auto shape = own.sizes().vec();
    shape.front() = rows;
    auto all = at::empty(shape, own.options());
    if (all.numel() == 0) return all;
    const std::size_t units_of_row = all.numel() / rows * units_of(all);
    std::vector<std::size_t> units;
    for (const auto count : counts) units.push_back(count * units_of_row);
    allgather(span_to_move(own), span_to_move(all), units.data());
    return all;
  }

  void allgather(ddprun_span own, ddprun_span all, const std::size_t* counts) const {
    ddprun_error error;
    ddprun_allgather(group_, own, all, counts, limit_ms_, nullptr, &error);
    check(error);
  }

  ddprun_group* group_;
  int size_;
  std::int64_t limit_ms_;
};

}  // namespace ddprun_torch
