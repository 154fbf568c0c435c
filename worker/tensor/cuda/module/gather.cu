#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/indexing.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;

template <class Word>
__global__ void __launch_bounds__(block_threads, 1)
    gather_kernel(std::int64_t n, Divider inner, Divider per_outer, std::int64_t count, const Word* x,
                  const std::int64_t* index, Word* out) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const std::int64_t outer = per_outer.quotient(i), column = i - inner.quotient(i) * inner.divisor();
    out[i] = x[(outer * n + index[i]) * inner.divisor() + column];
  }
}

// Gathers rows of `width` words.
template <class Word>
__global__ void __launch_bounds__(block_threads, 1)
    gather_rows_kernel(Divider width, std::int64_t count, const Word* table, const std::int64_t* index, Word* out) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const std::int64_t row = width.quotient(i);
    out[i] = table[(index[row] - row) * width.divisor() + i];
  }
}

template <class Word>
void gather_words(DeviceContext& device, std::int64_t bytes, const View& table, const View& index, const View& out) {
  const std::int64_t width = bytes / static_cast<std::int64_t>(sizeof(Word)), count = element_count(index) * width;
  launch(device, gather_rows_kernel<Word>, grid_of_threads(device, count), block_threads, 0, Divider(width), count,
         elements<Word>(table), elements<std::int64_t>(index), writable<Word>(out));
}

}  // namespace

void gather(DeviceContext& device, const View& x, const Axis& axis, const View& index, const View& out) {
  const std::int64_t count = element_count(index);
  if (count == 0) return;
  visit_word(x.dtype, [&]<class Word>() {
    launch(device, gather_kernel<Word>, grid_of_threads(device, count), block_threads, 0, axis.n, Divider(axis.inner),
           Divider(count / axis.outer), count, elements<Word>(x), elements<std::int64_t>(index), writable<Word>(out));
  });
}

void gather_rows(DeviceContext& device, const View& table, const View& index, const View& out) {
  const std::int64_t rows = table.shape[0];
  if (rows == 0 || element_count(out) == 0) return;
  const std::int64_t bytes = element_count(table) / rows * static_cast<std::int64_t>(size_of(table.dtype));
  // Words have 16 bytes where rows begin at multiples of them.
  using Wide = Pack<std::uint32_t, 4>;
  const auto is_wide = [](const View& view) { return reinterpret_cast<std::uintptr_t>(view.data) % sizeof(Wide) == 0; };
  if (bytes % static_cast<std::int64_t>(sizeof(Wide)) == 0 && is_wide(table) && is_wide(out))
    return gather_words<Wide>(device, bytes, table, index, out);
  visit_word(table.dtype, [&]<class Word>() { gather_words<Word>(device, bytes, table, index, out); });
}

}  // namespace ddprun::cuda
