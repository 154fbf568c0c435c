#include "ddprun/worker/tensor/kernels.h"

#include <algorithm>
#include <cmath>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/onednn/conv.h"
#include "ddprun/worker/tensor/onednn/matmul.h"
#include "ddprun/worker/tensor/plain/loops.h"

namespace ddprun::kernels {
namespace {

// Calls visit.template operator()<T>() for the element type.
template <class Visit>
decltype(auto) with_float_type(DType dtype, Visit&& visit) {
  if (dtype == DType::float32) return visit.template operator()<float>();
  if (dtype == DType::float64) return visit.template operator()<double>();
  throw make_error(Errc::unsupported, "arithmetic on {} tensors is not supported: only float32 and float64",
                   name_of(dtype));
}

Tensor like(const Tensor& tensor) {
  return Tensor::empty(tensor.shape(), tensor.dtype());
}

plain::Channels channels_of(const Tensor& tensor, std::int64_t outer, std::int64_t inner) {
  return {outer, outer * inner == 0 ? 0 : tensor.numel() / (outer * inner), inner};
}

template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  Tensor out = like(a);
  with_float_type(a.dtype(),
                  [&]<class T>() { plain::Elementwise<T>::add(a.numel(), a.data<T>(), b.data<T>(), out.data<T>()); });
  return out;
}

void add_in_place(Tensor& a, const Tensor& b) {
  with_float_type(a.dtype(),
                  [&]<class T>() { plain::Elementwise<T>::add(a.numel(), a.data<T>(), b.data<T>(), a.data<T>()); });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  Tensor out = like(a);
  with_float_type(a.dtype(), [&]<class T>() {
    plain::Elementwise<T>::multiply(a.numel(), a.data<T>(), b.data<T>(), out.data<T>());
  });
  return out;
}

Tensor scale(const Tensor& a, double factor) {
  Tensor out = like(a);
  with_float_type(a.dtype(), [&]<class T>() {
    plain::Elementwise<T>::scale(a.numel(), a.data<T>(), static_cast<T>(factor), out.data<T>());
  });
  return out;
}

Tensor relu(const Tensor& x) {
  Tensor y = like(x);
  with_float_type(x.dtype(), [&]<class T>() { plain::Elementwise<T>::relu(x.numel(), x.data<T>(), y.data<T>()); });
  return y;
}

Tensor relu_backward(const Tensor& y, const Tensor& grad) {
  Tensor out = like(y);
  with_float_type(y.dtype(), [&]<class T>() {
    plain::Elementwise<T>::relu_backward(y.numel(), y.data<T>(), grad.data<T>(), out.data<T>());
  });
  return out;
}

Tensor dropout_mask(const Shape& shape, DType dtype, double probability, Generator& generator) {
  Tensor mask = Tensor::empty(shape, dtype);
  with_float_type(dtype, [&]<class T>() {
    const T kept = probability < 1 ? static_cast<T>(1 / (1 - probability)) : T(0);
    std::generate_n(mask.data<T>(), mask.numel(),
                    [&] { return static_cast<double>(generator.uniform_float()) < probability ? T(0) : kept; });
  });
  return mask;
}

Tensor sum(const Tensor& x) {
  Tensor out = Tensor::empty({}, x.dtype());
  with_float_type(x.dtype(), [&]<class T>() { *out.data<T>() = plain::Sums<T>::sum(x.numel(), x.data<T>()); });
  return out;
}

void add_bias(Tensor& x, const Tensor& bias, std::int64_t outer, std::int64_t inner) {
  with_float_type(x.dtype(), [&]<class T>() {
    plain::Sums<T>::add_bias({outer, bias.numel(), inner}, bias.data<T>(), x.data<T>());
  });
}

void sum_to_bias(const Tensor& grad, std::int64_t outer, std::int64_t inner, Tensor& out, bool accumulate) {
  with_float_type(grad.dtype(), [&]<class T>() {
    plain::Sums<T>::sum_to_bias({outer, out.numel(), inner}, grad.data<T>(), out.data<T>(), accumulate);
  });
}

void matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  const std::int64_t k = options.transpose_a ? a.size(0) : a.size(1);
  if (a.dtype() == DType::float32) {
    onednn::matmul({out.size(0), out.size(1), k}, a.data<float>(), b.data<float>(), out.data<float>(), options);
    return;
  }
  with_float_type(a.dtype(), [&]<class T>() {
    plain::Matmul<T>::matmul({out.size(0), out.size(1), k}, a.data<T>(), b.data<T>(), out.data<T>(), options);
  });
}

Tensor conv2d(const ConvGeometry& g, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y = Tensor::empty({g.batch, g.out_channels, g.out_h, g.out_w}, x.dtype());
  if (x.dtype() == DType::float32) {
    onednn::conv_forward(g, x.data<float>(), weight.data<float>(), data_or_null<float>(bias), y.data<float>());
    return y;
  }
  with_float_type(x.dtype(), [&]<class T>() {
    plain::Conv<T>::forward(g, x.data<T>(), weight.data<T>(), data_or_null<T>(bias), y.data<T>());
  });
  return y;
}

Tensor conv2d_backward_input(const ConvGeometry& g, const Tensor& grad, const Tensor& weight) {
  Tensor out = Tensor::empty({g.batch, g.in_channels, g.height, g.width}, grad.dtype());
  if (grad.dtype() == DType::float32) {
    onednn::conv_backward_input(g, grad.data<float>(), weight.data<float>(), out.data<float>());
    return out;
  }
  with_float_type(grad.dtype(), [&]<class T>() {
    plain::Conv<T>::backward_input(g, grad.data<T>(), weight.data<T>(), out.data<T>());
  });
  return out;
}

void conv2d_backward_weight(const ConvGeometry& g, const Tensor& x, const Tensor& grad, Tensor& weight_grad,
                            bool accumulate) {
  if (grad.dtype() == DType::float32) {
    onednn::conv_backward_weight(g, x.data<float>(), grad.data<float>(), weight_grad.data<float>(), accumulate);
    return;
  }
  with_float_type(grad.dtype(), [&]<class T>() {
    plain::Conv<T>::backward_weight(g, x.data<T>(), grad.data<T>(), weight_grad.data<T>(), accumulate);
  });
}

Tensor max_pool2d(const PoolGeometry& g, const Tensor& x, const Shape& out_shape, Tensor& index) {
  Tensor y = Tensor::empty(out_shape, x.dtype());
  index = Tensor::empty(out_shape, DType::int32);
  with_float_type(x.dtype(),
                  [&]<class T>() { plain::Pool<T>::forward(g, x.data<T>(), y.data<T>(), index.data<std::int32_t>()); });
  return y;
}

Tensor max_pool2d_backward(const PoolGeometry& g, const Tensor& grad, const Tensor& index, const Shape& in_shape) {
  Tensor out = Tensor::empty(in_shape, grad.dtype());
  with_float_type(grad.dtype(), [&]<class T>() {
    plain::Pool<T>::backward(g, grad.data<T>(), index.data<std::int32_t>(), out.data<T>());
  });
  return out;
}

NormStatistics batch_statistics(const Tensor& x, std::int64_t outer, std::int64_t inner, double eps, Tensor& variance) {
  const plain::Channels shape = channels_of(x, outer, inner);
  variance = Tensor::empty({shape.channels}, x.dtype());
  NormStatistics result{Tensor::empty({shape.channels}, x.dtype()), Tensor()};
  with_float_type(x.dtype(), [&]<class T>() {
    plain::Norm<T>::statistics(shape, x.data<T>(), result.mean.data<T>(), variance.data<T>());
  });
  result.inverse = inverse_deviation(variance, eps);
  return result;
}

Tensor inverse_deviation(const Tensor& variance, double eps) {
  Tensor out = like(variance);
  with_float_type(variance.dtype(), [&]<class T>() {
    const T* from = variance.data<T>();
    std::transform(from, from + variance.numel(), out.data<T>(),
                   [eps](T value) { return static_cast<T>(1 / std::sqrt(static_cast<double>(value) + eps)); });
  });
  return out;
}

Tensor batch_norm(const Tensor& x, std::int64_t outer, std::int64_t inner, const NormStatistics& statistics,
                  const Tensor& weight, const Tensor& bias) {
  Tensor y = like(x);
  with_float_type(x.dtype(), [&]<class T>() {
    plain::Norm<T>::forward(channels_of(x, outer, inner), x.data<T>(), statistics.mean.data<T>(),
                            statistics.inverse.data<T>(), weight.data<T>(), bias.data<T>(), y.data<T>());
  });
  return y;
}

NormGradients batch_norm_backward(const Tensor& x, const Tensor& grad, std::int64_t outer, std::int64_t inner,
                                  const NormStatistics& statistics, const Tensor& weight, bool training) {
  NormGradients out{like(x), like(weight), like(weight)};
  with_float_type(x.dtype(), [&]<class T>() {
    plain::Norm<T>::backward(channels_of(x, outer, inner),
                             {x.data<T>(), grad.data<T>(), statistics.mean.data<T>(), statistics.inverse.data<T>(),
                              weight.data<T>(), training},
                             out.x.data<T>(), out.weight.data<T>(), out.bias.data<T>());
  });
  return out;
}

Tensor log_softmax(const Tensor& scores) {
  Tensor y = like(scores);
  with_float_type(scores.dtype(), [&]<class T>() {
    plain::Loss<T>::log_softmax(scores.size(0), scores.size(1), scores.data<T>(), y.data<T>());
  });
  return y;
}

Tensor log_softmax_backward(const Tensor& y, const Tensor& grad) {
  Tensor out = like(y);
  with_float_type(y.dtype(), [&]<class T>() {
    plain::Loss<T>::log_softmax_backward(y.size(0), y.size(1), y.data<T>(), grad.data<T>(), out.data<T>());
  });
  return out;
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets) {
  Tensor out = Tensor::empty({}, log_probabilities.dtype());
  with_float_type(out.dtype(), [&]<class T>() {
    *out.data<T>() = plain::Loss<T>::nll(log_probabilities.size(0), log_probabilities.size(1),
                                         log_probabilities.data<T>(), targets.data<std::int64_t>());
  });
  return out;
}

Tensor cross_entropy_backward(const Tensor& log_probabilities, const Tensor& targets, double factor) {
  Tensor out = like(log_probabilities);
  const std::int64_t rows = out.size(0);
  with_float_type(out.dtype(), [&]<class T>() {
    plain::Loss<T>::cross_entropy_backward(rows, out.size(1), log_probabilities.data<T>(), targets.data<std::int64_t>(),
                                           static_cast<T>(factor / static_cast<double>(rows)), out.data<T>());
  });
  return out;
}

Tensor nll_loss_backward(const Tensor& log_probabilities, const Tensor& targets, double factor) {
  Tensor out = Tensor::zeros(log_probabilities.shape(), log_probabilities.dtype());
  const std::int64_t rows = out.size(0), classes = out.size(1);
  const std::int64_t* target = targets.data<std::int64_t>();
  with_float_type(out.dtype(), [&]<class T>() {
    T* data = out.data<T>();
    for (std::int64_t row = 0; row < rows; ++row) {
      data[row * classes + target[row]] = static_cast<T>(-factor / static_cast<double>(rows));
    }
  });
  return out;
}

Tensor argmax_rows(const Tensor& scores) {
  Tensor out = Tensor::empty({scores.size(0)}, DType::int64);
  const std::int64_t classes = scores.size(1);
  with_float_type(scores.dtype(), [&]<class T>() {
    for (std::int64_t row = 0; row < scores.size(0); ++row) {
      const T* from = scores.data<T>() + row * classes;
      out.data<std::int64_t>()[row] = std::max_element(from, from + classes) - from;
    }
  });
  return out;
}

void sgd_step(Tensor& value, const Tensor& grad, Tensor& momentum, const SgdStep& step) {
  with_float_type(value.dtype(), [&]<class T>() {
    plain::Update<T>::sgd(value.numel(), value.data<T>(), grad.data<T>(),
                          momentum.defined() ? momentum.data<T>() : nullptr, step);
  });
}

void adam_step(Tensor& value, const Tensor& grad, Tensor& average, Tensor& square_average, const AdamStep& step) {
  with_float_type(value.dtype(), [&]<class T>() {
    plain::Update<T>::adam(value.numel(), value.data<T>(), grad.data<T>(), average.data<T>(), square_average.data<T>(),
                           step);
  });
}

}  // namespace ddprun::kernels
