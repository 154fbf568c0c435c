#include "worker/tensor/onednn/conv.h"

#include <algorithm>

#include "common/rounding.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/visit_dtype.h"

// float32 and bfloat16 run in oneDNN; the loops here are float64's, and the oracle of oneDNN's.
namespace ddprun::cpu {
namespace {

using kernels::ConvGeometry;

// The outputs along one direction for which a kernel position reads inside of the input: [first, last). k: the
// position's distance from the first, including dilation.
struct Range {
  std::int64_t first, last;
};
Range inside(std::int64_t k, std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t padding) {
  const std::int64_t lowest = padding - k;  // smallest o * stride that reads at 0
  const std::int64_t first = lowest > 0 ? divide_up(lowest, stride) : 0;
  const std::int64_t highest = in - 1 + padding - k;  // largest o * stride that reads at in - 1
  const std::int64_t last = highest < 0 ? 0 : std::min(out, highest / stride + 1);
  return {first, last};
}

// Calls visit(position in the weight, first input row's position, first output row's position, rows, columns) for every
// pair of a weight and a sample; the positions are those of output row and column 0, which need not lie inside.
template <class Visit>
void for_each_weight(const ConvGeometry& g, Visit visit) {
  const std::int64_t group_in = g.in_channels / g.groups, group_out = g.out_channels / g.groups;
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t oc = 0; oc < g.out_channels; ++oc)
      for (std::int64_t ic = 0; ic < group_in; ++ic)
        for (std::int64_t ky = 0; ky < g.kernel_h; ++ky)
          for (std::int64_t kx = 0; kx < g.kernel_w; ++kx) {
            const std::int64_t weight = ((oc * group_in + ic) * g.kernel_h + ky) * g.kernel_w + kx;
            const std::int64_t y = ky * g.dilation, x = kx * g.dilation;
            const std::int64_t channel = n * g.in_channels + oc / group_out * group_in + ic;
            const std::int64_t input = (channel * g.height - g.padding + y) * g.width + x - g.padding;
            const std::int64_t output = (n * g.out_channels + oc) * g.out_h * g.out_w;
            visit(weight, input, output, inside(y, g.height, g.out_h, g.stride, g.padding),
                  inside(x, g.width, g.out_w, g.stride, g.padding));
          }
}

// Calls visit(input, output) for every position at which a weight is used; see for_each_weight().
template <class Visit>
void for_each_use(const ConvGeometry& g, std::int64_t input, std::int64_t output, Range rows, Range columns,
                  Visit visit) {
  for (std::int64_t oy = rows.first; oy < rows.last; ++oy) {
    const std::int64_t from = input + oy * g.stride * g.width, to = output + oy * g.out_w;
    for (std::int64_t ox = columns.first; ox < columns.last; ++ox) visit(from + ox * g.stride, to + ox);
  }
}

void forward(const ConvGeometry& g, const double* x, const double* weight, const double* bias, double* y) {
  const std::int64_t plane = g.out_h * g.out_w;
  for (std::int64_t i = 0; i < g.batch * g.out_channels; ++i)
    std::fill_n(y + i * plane, plane, bias != nullptr ? bias[i % g.out_channels] : 0.0);
  for_each_weight(g, [&](auto at, auto input, auto output, Range rows, Range columns) {
    const double w = weight[at];
    for_each_use(g, input, output, rows, columns, [=](auto from, auto to) { y[to] += w * x[from]; });
  });
}

void backward_input(const ConvGeometry& g, const double* grad, const double* weight, double* x_grad) {
  std::fill_n(x_grad, g.batch * g.in_channels * g.height * g.width, 0.0);
  for_each_weight(g, [&](auto at, auto input, auto output, Range rows, Range columns) {
    const double w = weight[at];
    for_each_use(g, input, output, rows, columns, [=](auto from, auto to) { x_grad[from] += w * grad[to]; });
  });
}

void backward_weight(const ConvGeometry& g, const double* x, const double* grad, double* weight_grad, bool accumulate) {
  const std::int64_t count = g.out_channels * (g.in_channels / g.groups) * g.kernel_h * g.kernel_w;
  if (!accumulate) std::fill_n(weight_grad, count, 0.0);
  for_each_weight(g, [&](auto at, auto input, auto output, Range rows, Range columns) {
    double total = 0;
    for_each_use(g, input, output, rows, columns, [&](auto from, auto to) { total += x[from] * grad[to]; });
    weight_grad[at] += total;
  });
}

template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

onednn::Image<const void> image(const Tensor& tensor) {
  return {tensor.raw(), tensor.channel_block()};
}
onednn::Image<void> image(Tensor& tensor) {
  return {tensor.raw(), tensor.channel_block()};
}

Tensor empty_image(const Shape& shape, std::int64_t block, const Tensor& like) {
  return block != 0 ? Tensor::empty_blocked(shape, block, like.dtype(), like.device())
                    : Tensor::empty(shape, like.dtype(), like.device());
}

// 16-bit images that oneDNN would not convolve faster are converted.
bool needs_widening(const ConvGeometry& g, const Tensor& x) {
  return is_16_bit(x) && !onednn::convolves_fast(g, x.dtype());
}

Tensor conv2d(const ConvGeometry& g, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (needs_widening(g, x)) return conv2d(g, widened(x), widened(weight), widened(bias)).to(x.dtype());
  const Shape shape{g.batch, g.out_channels, g.out_h, g.out_w};
  if (x.dtype() == DType::float64) {
    Tensor y = Tensor::empty(shape, x.dtype(), x.device());
    forward(g, x.data<double>(), weight.data<double>(), data_or_null<double>(bias), y.data<double>());
    return y;
  }
  Tensor y = empty_image(shape, onednn::preferred_blocks(g, x.dtype()).y, x);
  onednn::conv_forward(g, x.dtype(), image(x), weight.raw(), bias.defined() ? bias.raw() : nullptr, image(y));
  return y;
}

Tensor conv2d_backward_input(const ConvGeometry& g, const Tensor& grad, const Tensor& weight) {
  if (needs_widening(g, grad)) return conv2d_backward_input(g, widened(grad), widened(weight)).to(grad.dtype());
  const Shape shape{g.batch, g.in_channels, g.height, g.width};
  if (grad.dtype() == DType::float64) {
    Tensor out = Tensor::empty(shape, grad.dtype(), grad.device());
    backward_input(g, grad.data<double>(), weight.data<double>(), out.data<double>());
    return out;
  }
  Tensor out = empty_image(shape, onednn::preferred_blocks(g, grad.dtype()).x, grad);
  onednn::conv_backward_input(g, grad.dtype(), image(grad), weight.raw(), image(out));
  return out;
}

// weight_grad may be float32 while x and grad have 16 bits.
void conv2d_backward_weight(const ConvGeometry& g, const Tensor& x, const Tensor& grad, Tensor& weight_grad,
                            bool accumulate) {
  if (is_16_bit(weight_grad)) {
    Tensor wide = widened(weight_grad);
    conv2d_backward_weight(g, x, grad, wide, accumulate);
    kernels::copy(wide, weight_grad);
  } else if (needs_widening(g, grad)) {
    conv2d_backward_weight(g, widened(x), widened(grad), weight_grad, accumulate);
  } else if (grad.dtype() == DType::float64) {
    backward_weight(g, x.data<double>(), grad.data<double>(), weight_grad.data<double>(), accumulate);
  } else {
    onednn::conv_backward_weight(g, grad.dtype(), image(x), image(grad), weight_grad.data<float>(), accumulate);
  }
}

}  // namespace

void add_convolutions(kernels::Table& table) {
  table.conv2d = conv2d;
  table.conv2d_backward_input = conv2d_backward_input;
  table.conv2d_backward_weight = conv2d_backward_weight;
}

}  // namespace ddprun::cpu
