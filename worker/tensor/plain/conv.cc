#include <algorithm>

#include "ddprun/worker/tensor/plain/loops.h"

namespace ddprun::plain {
namespace {

// The outputs along one direction for which kernel position k reads inside of the input: [first, last).
struct Range {
  std::int64_t first, last;
};
Range inside(std::int64_t k, std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t padding) {
  const std::int64_t lowest = padding - k;  // smallest o * stride that reads at 0
  const std::int64_t first = lowest > 0 ? (lowest + stride - 1) / stride : 0;
  const std::int64_t highest = in - 1 + padding - k;  // largest o * stride that reads at in - 1
  const std::int64_t last = highest < 0 ? 0 : std::min(out, highest / stride + 1);
  return {first, last};
}

// Calls visit(n, oc, ic, ky, kx, rows, columns) for every pair of a weight and a sample.
template <class Visit>
void for_each_weight(const ConvGeometry& g, Visit visit) {
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t oc = 0; oc < g.out_channels; ++oc)
      for (std::int64_t ic = 0; ic < g.in_channels; ++ic)
        for (std::int64_t ky = 0; ky < g.kernel_h; ++ky)
          for (std::int64_t kx = 0; kx < g.kernel_w; ++kx)
            visit(n, oc, ic, ky, kx, inside(ky, g.height, g.out_h, g.stride, g.padding),
                  inside(kx, g.width, g.out_w, g.stride, g.padding));
}

std::int64_t weight_at(const ConvGeometry& g, std::int64_t oc, std::int64_t ic, std::int64_t ky, std::int64_t kx) {
  return ((oc * g.in_channels + ic) * g.kernel_h + ky) * g.kernel_w + kx;
}
// Where kernel column kx of output row oy, column 0 reads: may lie outside, only columns of the range are used.
std::int64_t input_at(const ConvGeometry& g, std::int64_t n, std::int64_t ic, std::int64_t oy, std::int64_t ky,
                      std::int64_t kx) {
  return ((n * g.in_channels + ic) * g.height + oy * g.stride - g.padding + ky) * g.width + kx - g.padding;
}
std::int64_t output_at(const ConvGeometry& g, std::int64_t n, std::int64_t oc, std::int64_t oy) {
  return ((n * g.out_channels + oc) * g.out_h + oy) * g.out_w;
}

}  // namespace

template <class T>
void Conv<T>::forward(const ConvGeometry& g, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t plane = g.out_h * g.out_w;
  for (std::int64_t i = 0; i < g.batch * g.out_channels; ++i) {
    std::fill_n(y + i * plane, plane, bias != nullptr ? bias[i % g.out_channels] : T(0));
  }
  for_each_weight(g, [&](auto n, auto oc, auto ic, auto ky, auto kx, Range rows, Range columns) {
    const T w = weight[weight_at(g, oc, ic, ky, kx)];
    for (std::int64_t oy = rows.first; oy < rows.last; ++oy) {
      const std::int64_t from = input_at(g, n, ic, oy, ky, kx), to = output_at(g, n, oc, oy);
      for (std::int64_t ox = columns.first; ox < columns.last; ++ox) y[to + ox] += w * x[from + ox * g.stride];
    }
  });
}

template <class T>
void Conv<T>::backward_input(const ConvGeometry& g, const T* grad, const T* weight, T* x_grad) {
  std::fill_n(x_grad, g.batch * g.in_channels * g.height * g.width, T(0));
  for_each_weight(g, [&](auto n, auto oc, auto ic, auto ky, auto kx, Range rows, Range columns) {
    const T w = weight[weight_at(g, oc, ic, ky, kx)];
    for (std::int64_t oy = rows.first; oy < rows.last; ++oy) {
      const std::int64_t to = input_at(g, n, ic, oy, ky, kx), from = output_at(g, n, oc, oy);
      for (std::int64_t ox = columns.first; ox < columns.last; ++ox) x_grad[to + ox * g.stride] += w * grad[from + ox];
    }
  });
}

template <class T>
void Conv<T>::backward_weight(const ConvGeometry& g, const T* x, const T* grad, T* weight_grad, bool accumulate) {
  if (!accumulate) std::fill_n(weight_grad, g.out_channels * g.in_channels * g.kernel_h * g.kernel_w, T(0));
  for_each_weight(g, [&](auto n, auto oc, auto ic, auto ky, auto kx, Range rows, Range columns) {
    T total = 0;
    for (std::int64_t oy = rows.first; oy < rows.last; ++oy) {
      const std::int64_t at = input_at(g, n, ic, oy, ky, kx), from = output_at(g, n, oc, oy);
      for (std::int64_t ox = columns.first; ox < columns.last; ++ox) total += x[at + ox * g.stride] * grad[from + ox];
    }
    weight_grad[weight_at(g, oc, ic, ky, kx)] += total;
  });
}

template struct Conv<float>;
template struct Conv<double>;

}  // namespace ddprun::plain
