#include <algorithm>
#include <cmath>

#include "common/rounding.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"

// Plain loops: oneDNN's max-pooling (2.6, jit:avx512_core) takes 3.3 times as long forward and 4 times backward on
// 64x10x24x24, window and stride 2, and 1.6 and 10 times on 64x20x8x8.
namespace ddprun::cpu {
namespace {

using kernels::PoolGeometry;

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

// Computes the common case, windows of 2x2 side by side, as selections without branches so that it vectorizes.
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

template <class T>
DDPRUN_VECTORIZED void max_forward(const PoolGeometry& g, const T* x, T* y, std::int32_t* index) {
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

Tensor max_pool2d(const PoolGeometry& g, const Tensor& x, const Shape& out_shape, Tensor& index) {
  if (is_16_bit(x)) return max_pool2d(g, widened(x), out_shape, index).to(x.dtype());
  Tensor y = Tensor::empty(out_shape, x.dtype(), x.device());
  index = Tensor::empty(out_shape, DType::int32, x.device());
  visit_wide(x.dtype(), [&]<class T>() { max_forward(g, x.data<T>(), y.data<T>(), index.data<std::int32_t>()); });
  return y;
}

Tensor max_pool2d_backward(const PoolGeometry& g, const Tensor& grad, const Tensor& index, const Shape& in_shape) {
  if (is_16_bit(grad)) return max_pool2d_backward(g, widened(grad), index, in_shape).to(grad.dtype());
  Tensor out = Tensor::zeros(in_shape, grad.dtype(), grad.device());
  const std::int64_t in_plane = g.height * g.width, out_plane = g.out_h * g.out_w;
  visit_wide(grad.dtype(), [&]<class T>() {
    const T* from = grad.data<T>();
    const std::int32_t* at = index.data<std::int32_t>();
    T* to = out.data<T>();
    for (std::int64_t plane = 0; plane < g.planes; ++plane, to += in_plane)
      for (std::int64_t i = 0; i < out_plane; ++i) to[*at++] += *from++;
  });
  return out;
}

// --- averages: each output is the mean over a window of its plane

struct Window {
  std::int64_t top, bottom, left, right;  // clipped to the plane
  std::int64_t divisor;
};

// Zeros of the padding count, as in PyTorch's default.
Window sliding_window(const PoolGeometry& g, std::int64_t oy, std::int64_t ox) {
  const std::int64_t top = oy * g.stride - g.padding, left = ox * g.stride - g.padding;
  const std::int64_t bottom = std::min(top + g.kernel, g.height + g.padding);
  const std::int64_t right = std::min(left + g.kernel, g.width + g.padding);
  return {std::max<std::int64_t>(top, 0), std::min(bottom, g.height), std::max<std::int64_t>(left, 0),
          std::min(right, g.width), (bottom - top) * (right - left)};
}

Window adaptive_window(const PoolGeometry& g, std::int64_t oy, std::int64_t ox) {
  const auto end = [](std::int64_t i, std::int64_t size, std::int64_t out) { return divide_up((i + 1) * size, out); };
  const Window w{oy * g.height / g.out_h, end(oy, g.height, g.out_h), ox * g.width / g.out_w, end(ox, g.width, g.out_w),
                 0};
  return {w.top, w.bottom, w.left, w.right, (w.bottom - w.top) * (w.right - w.left)};
}

using WindowOf = Window (*)(const PoolGeometry&, std::int64_t, std::int64_t);

// Calls visit(plane, output's position, window) for every output.
template <class Visit>
void for_each_window(const PoolGeometry& g, WindowOf window_of, Visit visit) {
  std::int64_t output = 0;
  for (std::int64_t plane = 0; plane < g.planes; ++plane)
    for (std::int64_t oy = 0; oy < g.out_h; ++oy)
      for (std::int64_t ox = 0; ox < g.out_w; ++ox) visit(plane * g.height * g.width, output++, window_of(g, oy, ox));
}

template <WindowOf window_of>
Tensor average(const PoolGeometry& g, const Tensor& x, const Shape& out_shape) {
  if (is_16_bit(x)) return average<window_of>(g, widened(x), out_shape).to(x.dtype());
  Tensor out = Tensor::empty(out_shape, x.dtype(), x.device());
  visit_wide(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    for_each_window(g, window_of, [&](std::int64_t plane, std::int64_t output, const Window& w) {
      T total = 0;
      for (std::int64_t row = w.top; row < w.bottom; ++row)
        for (std::int64_t column = w.left; column < w.right; ++column) total += from[plane + row * g.width + column];
      to[output] = total / static_cast<T>(w.divisor);
    });
  });
  return out;
}

template <WindowOf window_of>
Tensor average_backward(const PoolGeometry& g, const Tensor& grad, const Shape& in_shape) {
  if (is_16_bit(grad)) return average_backward<window_of>(g, widened(grad), in_shape).to(grad.dtype());
  Tensor out = Tensor::zeros(in_shape, grad.dtype(), grad.device());
  visit_wide(grad.dtype(), [&]<class T>() {
    const T* from = grad.data<T>();
    T* to = out.data<T>();
    for_each_window(g, window_of, [&](std::int64_t plane, std::int64_t output, const Window& w) {
      const T share = from[output] / static_cast<T>(w.divisor);
      for (std::int64_t row = w.top; row < w.bottom; ++row)
        for (std::int64_t column = w.left; column < w.right; ++column) to[plane + row * g.width + column] += share;
    });
  });
  return out;
}

}  // namespace

void add_pooling(kernels::Table& table) {
  table.max_pool2d = max_pool2d;
  table.max_pool2d_backward = max_pool2d_backward;
  table.avg_pool2d = average<sliding_window>;
  table.avg_pool2d_backward = average_backward<sliding_window>;
  table.adaptive_avg_pool2d = average<adaptive_window>;
  table.adaptive_avg_pool2d_backward = average_backward<adaptive_window>;
}

}  // namespace ddprun::cpu
