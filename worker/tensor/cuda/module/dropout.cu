#include <algorithm>

#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/philox.h"

namespace ddprun::cuda {
namespace {

// The streams are passed by value, so that no memory of the host has to outlive the call: as many as leave room in the
// 4 KiB that all architectures have for the parameters of a kernel.
struct Streams {
  static constexpr std::int64_t most = 256;
  std::uint64_t of_row[most];
};

struct Drops {
  std::uint64_t seed, first;
  double probability, scale;
};

// A thread has the four numbers of a Philox block, which may begin before the row and end behind it.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    dropout_kernel(Drops drops, Streams streams, std::int64_t rows, Divider per_row, std::int64_t count, const T* x,
                   T* out) {
  using C = ComputeType<T>;
  const auto lead = static_cast<std::int64_t>(drops.first % 4);
  const C scale = static_cast<C>(drops.scale);
  for (std::int64_t i = thread_of_grid(); i < rows * per_row.divisor(); i += threads_of_grid()) {
    const std::int64_t row = per_row.quotient(i), block = i - row * per_row.divisor();
    const PhiloxBlock random =
        philox(drops.first / 4 + static_cast<std::uint64_t>(block), streams.of_row[row], drops.seed);
    const std::int64_t start = block * 4 - lead;
    const auto kept = [&](T value, int k) {
      const bool drop = static_cast<double>(uniform_float(random.numbers[k])) < drops.probability;
      return drop ? T(C(0)) : T(static_cast<C>(value) * scale);
    };
    const T* from = x + row * count + start;
    T* to = out + row * count + start;
    const bool whole = start >= 0 && start + 4 <= count;
    if (whole && is_aligned<4>(from) && is_aligned<4>(to)) {
      Pack<T, 4> pack = load_pack<4>(from, true);
      for (int k = 0; k < 4; ++k) pack.elements[k] = kept(pack.elements[k], k);
      store_pack(pack, to, true);
      continue;
    }
    for (int k = 0; k < 4; ++k)
      if (start + k >= 0 && start + k < count) to[k] = kept(from[k], k);
  }
}

}  // namespace

void dropout(DeviceContext& device, const View& x, double probability, std::uint64_t seed, const std::uint64_t* streams,
             std::int64_t rows, std::uint64_t first, const View& out) {
  const std::int64_t count = rows > 0 ? element_count(x) / rows : 0;
  if (count == 0) return;
  // The number of Philox blocks that a row needs.
  const std::int64_t per_row = divide_up(static_cast<std::int64_t>(first % 4) + count, 4);
  const Drops drops{seed, first, probability, probability < 1 ? 1 / (1 - probability) : 0};
  visit_floating(device, "dropout", x.dtype, [&]<class T>() {
    for (std::int64_t row = 0; row < rows; row += Streams::most) {
      const std::int64_t some = std::min(Streams::most, rows - row);
      Streams own{};
      std::copy_n(streams + row, some, own.of_row);
      launch(device, dropout_kernel<T>, grid_of_threads(device, some * per_row), block_threads, 0, drops, own, some,
             Divider(per_row), count, elements<T>(x) + row * count, writable<T>(out) + row * count);
    }
  });
}

}  // namespace ddprun::cuda
