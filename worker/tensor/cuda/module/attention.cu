#include <algorithm>
#include <limits>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/tensor/cuda/module/attention.h"
#include "worker/tensor/cuda/module/attention_backward.h"
#include "worker/tensor/cuda/module/attention_forward.h"
#include "worker/tensor/cuda/module/launch.h"
#include "worker/tensor/cuda/module/scratch.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using kernels::AttentionOptions;

AttentionSizes sizes_of(const View& query, const View& key, const View& value, const AttentionOptions& options) {
  return {.batch = query.shape[0],
          .heads = query.shape[1],
          .queries = query.shape[2],
          .keys = key.shape[2],
          .width = static_cast<int>(query.shape[3]),
          .value_width = static_cast<int>(value.shape[3]),
          .causal = options.causal};
}

template <class Stored>
HeadRows<Stored> rows_of(const View& view) {
  constexpr int chunk = pack_size<std::remove_const_t<Stored>>;
  const bool aligned = is_aligned<chunk>(static_cast<Stored*>(view.data)) &&
                       std::all_of(view.strides.begin(), view.strides.begin() + 3,
                                   [](std::int64_t stride) { return stride % chunk == 0; });
  return {.data = static_cast<Stored*>(view.data),
          .batch_stride = view.strides[0],
          .head_stride = view.strides[1],
          .row_stride = view.strides[2],
          .aligned = aligned};
}

template <int Width>
using WidthConstant = std::integral_constant<int, Width>;

// Calls visit(constant) with the least width of tiles that has room for all columns.
template <class Visit>
void visit_width(const AttentionSizes& sizes, Visit visit) {
  const int width = std::max(sizes.width, sizes.value_width);
  if (width <= 32) return visit(WidthConstant<32>());
  if (width <= 64) return visit(WidthConstant<64>());
  if (width <= 128) return visit(WidthConstant<128>());
  throw make_error(Errc::unsupported, "attention on a cuda device: heads of width {} are not supported, at most 128",
                   width);
}

// Returns the number of blocks: one for each tile of each head.
unsigned blocks_of(const AttentionSizes& sizes, std::int64_t rows, int tile_rows) {
  const std::int64_t blocks = divide_up(rows, tile_rows) * sizes.batch * sizes.heads;
  if (blocks <= std::numeric_limits<std::int32_t>::max()) return static_cast<unsigned>(blocks);
  throw make_error(Errc::unsupported, "attention on a cuda device: {} x {} heads of {} rows are too many", sizes.batch,
                   sizes.heads, rows);
}

}  // namespace

void attention(DeviceContext& device, const View& query, const View& key, const View& value, const View& mask,
               const AttentionOptions& options, const View& out, const View& log_sum) {
  const AttentionSizes sizes = sizes_of(query, key, value, options);
  visit_floating(device, "attention", query.dtype, [&]<class Stored>() {
    using T = ComputeType<Stored>;
    visit_width(sizes, [&]<int Width>(WidthConstant<Width>) {
      using Tiles = ForwardTiles<Stored, Width>;
      const unsigned blocks = blocks_of(sizes, sizes.queries, Tiles::queries);
      if (blocks == 0) return;
      launch(device, attention_kernel<Stored, Width>, blocks, warp_size * Tiles::warps, 0, sizes,
             static_cast<T>(options.scale), rows_of<const Stored>(query), rows_of<const Stored>(key),
             rows_of<const Stored>(value), static_cast<const Stored*>(mask.data), rows_of<Stored>(out),
             static_cast<T*>(log_sum.data));
    });
  });
}

void attention_backward(DeviceContext& device, const View& query, const View& key, const View& value, const View& mask,
                        const View& log_sum, const View& grad_dot_out, const View& grad,
                        const AttentionOptions& options, const View& query_grad, const View& key_grad,
                        const View& value_grad, bool accumulate) {
  const AttentionSizes sizes = sizes_of(query, key, value, options);
  visit_floating(device, "attention_backward", query.dtype, [&]<class Stored>() {
    using T = ComputeType<Stored>;
    visit_width(sizes, [&]<int Width>(WidthConstant<Width>) {
      using Tiles = BackwardTiles<Stored, Width>;
      const BackwardInputs<Stored> in{.sizes = sizes,
                                      .scale = static_cast<T>(options.scale),
                                      .query = rows_of<const Stored>(query),
                                      .key = rows_of<const Stored>(key),
                                      .value = rows_of<const Stored>(value),
                                      .grad = rows_of<const Stored>(grad),
                                      .mask = static_cast<const Stored*>(mask.data),
                                      .log_sum = static_cast<const T*>(log_sum.data)};
      const bool is_given = grad_dot_out.data != nullptr;
      const std::int64_t numbers = sizes.batch * sizes.heads * sizes.queries;
      const Scratch memory = scratch_for<T>(device, is_given ? 0 : numbers);
      T* const dots = is_given ? static_cast<T*>(grad_dot_out.data) : memory.data<T>();
      const unsigned by_query = blocks_of(sizes, sizes.queries, Tiles::own);
      if (by_query != 0)
        launch(device, query_gradient_kernel<Stored, Width>, by_query, warp_size * Tiles::strips, 0, in, is_given, dots,
               rows_of<Stored>(query_grad), accumulate);
      const unsigned by_key = blocks_of(sizes, sizes.keys, Tiles::own);
      if (by_key != 0)
        launch(device, key_gradient_kernel<Stored, Width>, by_key, warp_size * Tiles::strips * Tiles::splits, 0, in,
               static_cast<const T*>(dots), rows_of<Stored>(key_grad), rows_of<Stored>(value_grad), accumulate);
    });
  });
}

}  // namespace ddprun::cuda
