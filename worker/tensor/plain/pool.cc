#include <algorithm>
#include <cmath>

#include "ddprun/worker/tensor/plain/loops.h"
#include "ddprun/worker/tensor/plain/vectorize.h"

// The only pooling there is: oneDNN's (2.6, jit:avx512_core) takes 3.3 times as long forward and 4 times backward on
// 64x10x24x24, window and stride 2, and 1.6 and 10 times on 64x20x8x8.
namespace ddprun::plain {
namespace {

// The first maximum of one window of a plane, clipped to it. A NaN counts as larger than everything, as in PyTorch.
template <class T>
std::int64_t maximum_in_window(const PoolGeometry& g, const T* plane, std::int64_t oy, std::int64_t ox) {
  const std::int64_t top = oy * g.stride - g.padding, left = ox * g.stride - g.padding;
  const std::int64_t y_end = std::min(top + g.kernel, g.height), x_end = std::min(left + g.kernel, g.width);
  const std::int64_t y_start = std::max<std::int64_t>(top, 0), x_start = std::max<std::int64_t>(left, 0);
  std::int64_t best = y_start * g.width + x_start;
  for (std::int64_t y = y_start; y < y_end; ++y) {
    for (std::int64_t x = x_start; x < x_end; ++x) {
      const T value = plane[y * g.width + x];
      if (value > plane[best] || std::isnan(value)) best = y * g.width + x;
    }
  }
  return best;
}

// The common case, windows of 2x2 side by side, as selections without branches so that it vectorises.
template <class T>
[[gnu::always_inline]] inline void row_2x2(std::int64_t count, const T* __restrict upper, const T* __restrict lower,
                                           std::int32_t base, std::int32_t width, T* __restrict y,
                                           std::int32_t* __restrict index) {
  for (std::int64_t i = 0; i < count; ++i) {
    T best = upper[2 * i];
    std::int32_t offset = 0;
    const auto consider = [&](T value, std::int32_t at) {
      offset = value > best ? at : offset;
      best = value > best ? value : best;
      offset = std::isnan(value) ? at : offset;
      best = std::isnan(value) ? value : best;
    };
    consider(upper[2 * i + 1], 1);
    consider(lower[2 * i], width);
    consider(lower[2 * i + 1], width + 1);
    y[i] = best;
    index[i] = base + 2 * static_cast<std::int32_t>(i) + offset;
  }
}

template <class T>
[[gnu::always_inline]] inline void forward_2x2(const PoolGeometry& g, const T* x, T* y, std::int32_t* index) {
  const auto width = static_cast<std::int32_t>(g.width);
  for (std::int64_t plane = 0; plane < g.planes; ++plane, x += g.height * g.width) {
    for (std::int64_t oy = 0; oy < g.out_h; ++oy, y += g.out_w, index += g.out_w) {
      const T* upper = x + 2 * oy * g.width;
      row_2x2(g.out_w, upper, upper + g.width, static_cast<std::int32_t>(2 * oy * g.width), width, y, index);
    }
  }
}

}  // namespace

template <class T>
DDPRUN_VECTORIZED void Pool<T>::forward(const PoolGeometry& g, const T* x, T* y, std::int32_t* index) {
  if (g.kernel == 2 && g.stride == 2 && g.padding == 0) {
    forward_2x2(g, x, y, index);
    return;
  }
  for (std::int64_t plane = 0; plane < g.planes; ++plane, x += g.height * g.width) {
    for (std::int64_t oy = 0; oy < g.out_h; ++oy) {
      for (std::int64_t ox = 0; ox < g.out_w; ++ox) {
        const std::int64_t best = maximum_in_window(g, x, oy, ox);
        *y++ = x[best];
        *index++ = static_cast<std::int32_t>(best);
      }
    }
  }
}

template <class T>
void Pool<T>::backward(const PoolGeometry& g, const T* grad, const std::int32_t* index, T* x_grad) {
  const std::int64_t in_plane = g.height * g.width, out_plane = g.out_h * g.out_w;
  std::fill_n(x_grad, g.planes * in_plane, T(0));
  for (std::int64_t plane = 0; plane < g.planes; ++plane, x_grad += in_plane) {
    for (std::int64_t i = 0; i < out_plane; ++i) x_grad[*index++] += *grad++;
  }
}

template struct Pool<float>;
template struct Pool<double>;

}  // namespace ddprun::plain
