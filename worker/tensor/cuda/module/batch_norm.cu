#include <algorithm>

#include "worker/tensor/cuda/module/batch_norm.h"
#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/memory.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/cuda/module/warp.h"

// The positions of a channel are divided into parts, each summed by a block; then a thread merges the parts of a
// channel in double, in their order. The number of parts depends only on the shape.
namespace ddprun::cuda {
namespace {

// Memory is (outer, channels, inner).
struct Channels {
  Divider channels, inner;
  std::int64_t positions;  // those of a channel
  std::int64_t part;       // the positions of a part, except the last one
  std::int64_t parts;

  Channels(const View& x, std::int64_t outer, std::int64_t inner_size)
      : channels(element_count(x) / (outer * inner_size)), inner(inner_size), positions(outer * inner_size) {
    constexpr std::int64_t smallest = 8192, most = 128;
    const std::int64_t wanted = std::min(divide_up(positions, smallest), most);
    part = divide_up(divide_up(positions, wanted), block_threads) * block_threads;
    parts = divide_up(positions, part);
  }

  std::int64_t elements() const { return positions * channels.divisor(); }
  dim3 grid() const { return {static_cast<unsigned>(channels.divisor()), static_cast<unsigned>(parts)}; }
  __device__ std::int64_t channel_of(std::int64_t element) const {
    const std::int64_t row = inner.quotient(element);
    return row - channels.quotient(row) * channels.divisor();
  }
  // Returns where the position of a channel is in memory.
  __device__ std::int64_t element(std::int64_t channel, std::int64_t position) const {
    const std::int64_t outer = inner.quotient(position);
    return (outer * channels.divisor() + channel) * inner.divisor() + position - outer * inner.divisor();
  }
};

// Values by channel, of any floating-point type: there are few, so their type is looked at where they are read.
struct Values {
  void* data;
  DType dtype;

  template <class T>
  __device__ T get(std::int64_t i) const {
    switch (dtype) {
      case DType::float64:
        return static_cast<T>(static_cast<const double*>(data)[i]);
      case DType::bfloat16:
        return static_cast<T>(static_cast<float>(static_cast<const BFloat16*>(data)[i]));
      case DType::float16:
        return static_cast<T>(static_cast<float>(static_cast<const Float16*>(data)[i]));
      default:
        return static_cast<T>(static_cast<const float*>(data)[i]);
    }
  }
  __device__ void set(std::int64_t i, double value) const {
    switch (dtype) {
      case DType::float64:
        static_cast<double*>(data)[i] = value;
        break;
      case DType::bfloat16:
        static_cast<BFloat16*>(data)[i] = static_cast<BFloat16>(static_cast<float>(value));
        break;
      case DType::float16:
        static_cast<Float16*>(data)[i] = static_cast<Float16>(static_cast<float>(value));
        break;
      default:
        static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }
};

Values values(const DeviceContext& device, const char* operation, const View& view) {
  if (!is_floating(view.dtype)) refuse_dtype(device, operation, view.dtype);
  return {view.data, view.dtype};
}

// Calls visit(element) for the elements of the block's part of its channel that are this thread's, `size` in a row.
template <int size, class Visit>
__device__ void for_each_of_part(const Channels& shape, Visit visit) {
  const std::int64_t first = blockIdx.y * shape.part;
  const std::int64_t last = first + shape.part < shape.positions ? first + shape.part : shape.positions;
  for (std::int64_t i = first + threadIdx.x * size; i < last; i += block_threads * size)
    visit(shape.element(blockIdx.x, i));
}

__device__ inline std::int64_t part_index(const Channels& shape) {
  return blockIdx.x * shape.parts + blockIdx.y;
}

__device__ inline std::int64_t size_of_part(const Channels& shape, std::int64_t part) {
  const std::int64_t left = shape.positions - part * shape.part;
  return left < shape.part ? left : shape.part;
}

// Finds the mean of each part, and the sum of the squared distances from it.
template <class E, int size, class T = ComputeType<E>>
__global__ void part_statistics(Channels shape, const E* __restrict__ x, T* __restrict__ means,
                                T* __restrict__ squares) {
  T sum = 0;
  for_each_of_part<size>(shape, [&](std::int64_t at) {
    const auto pack = load_pack<size>(x + at, true);
    for (int i = 0; i < size; ++i) sum += static_cast<T>(pack.elements[i]);
  });
  const T mean = reduce_block<block_threads>(sum, Plus{}) / static_cast<T>(size_of_part(shape, blockIdx.y));
  T square = 0;
  for_each_of_part<size>(shape, [&](std::int64_t at) {
    const auto pack = load_pack<size>(x + at, true);
    for (int i = 0; i < size; ++i) {
      const T distance = static_cast<T>(pack.elements[i]) - mean;
      square += distance * distance;
    }
  });
  square = reduce_block<block_threads>(square, Plus{});
  if (threadIdx.x != 0) return;
  means[part_index(shape)] = mean;
  squares[part_index(shape)] = square;
}

// Applies Chan's formula for two sets of numbers, part after part.
template <class T>
__global__ void merge_statistics(Channels shape, const T* __restrict__ means, const T* __restrict__ squares, double eps,
                                 Values mean, Values inverse, Values variance) {
  const std::int64_t channel = thread_of_grid();
  if (channel >= shape.channels.divisor()) return;
  double count = 0, center = 0, square = 0;
  for (std::int64_t part = 0; part < shape.parts; ++part) {
    const std::int64_t at = channel * shape.parts + part;
    const auto added = static_cast<double>(size_of_part(shape, part));
    const double distance = static_cast<double>(means[at]) - center;
    const double total = count + added;
    center += distance * (added / total);
    square += static_cast<double>(squares[at]) + distance * distance * (count * added / total);
    count = total;
  }
  mean.set(channel, center);
  variance.set(channel, square / count);
  inverse.set(channel, 1 / sqrt(variance.get<double>(channel) + eps));
}

__global__ void inverse_of(std::int64_t count, Values variance, double eps, Values out) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid())
    out.set(i, 1 / sqrt(variance.get<double>(i) + eps));
}

template <class E, int size, class T = ComputeType<E>>
__global__ void normalize(Channels shape, std::int64_t packs, const E* __restrict__ x, Values mean, Values inverse,
                          Values weight, Values bias, E* __restrict__ y) {
  for (std::int64_t p = thread_of_grid(); p < packs; p += threads_of_grid()) {
    const std::int64_t channel = shape.channel_of(p * size);
    const T center = mean.get<T>(channel), factor = inverse.get<T>(channel) * weight.get<T>(channel);
    const T shift = bias.get<T>(channel);
    const auto from = load_pack<size>(x + p * size, true);
    Pack<E, size> to;
    for (int i = 0; i < size; ++i)
      to.elements[i] = static_cast<E>((static_cast<T>(from.elements[i]) - center) * factor + shift);
    store_pack(to, y + p * size, true);
  }
}

// Sums, for each part, the gradient, and the gradient times the distance from the mean.
template <class E, int size, class T = ComputeType<E>>
__global__ void part_gradients(Channels shape, const E* __restrict__ x, const E* __restrict__ grad, Values mean,
                               T* __restrict__ sums, T* __restrict__ products) {
  const T center = mean.get<T>(blockIdx.x);
  T sum = 0, product = 0;
  for_each_of_part<size>(shape, [&](std::int64_t at) {
    const auto inputs = load_pack<size>(x + at, true);
    const auto grads = load_pack<size>(grad + at, true);
    for (int i = 0; i < size; ++i) {
      const T value = static_cast<T>(grads.elements[i]);
      sum += value;
      product += value * (static_cast<T>(inputs.elements[i]) - center);
    }
  });
  sum = reduce_block<block_threads>(sum, Plus{});
  product = reduce_block<block_threads>(product, Plus{});
  if (threadIdx.x != 0) return;
  sums[part_index(shape)] = sum;
  products[part_index(shape)] = product;
}

// The amount that an input's gradient has to lose where the statistics are of this very x: shift, and slope times its
// distance from the mean.
template <class T>
struct Correction {
  T shift, slope;
};

// With h = (x - mean) inverse over the positions of a channel: d bias = sum grad, d weight = sum grad h.
template <class T>
__global__ void merge_gradients(Channels shape, const T* __restrict__ sums, const T* __restrict__ products,
                                Values inverse, bool training, Values weight_grad, Values bias_grad,
                                Correction<T>* __restrict__ corrections) {
  const std::int64_t channel = thread_of_grid();
  if (channel >= shape.channels.divisor()) return;
  double sum = 0, product = 0;
  for (std::int64_t part = 0; part < shape.parts; ++part) {
    sum += static_cast<double>(sums[channel * shape.parts + part]);
    product += static_cast<double>(products[channel * shape.parts + part]);
  }
  const double scale = inverse.get<double>(channel), count = static_cast<double>(shape.positions);
  bias_grad.set(channel, sum);
  weight_grad.set(channel, product * scale);
  corrections[channel] = training ? Correction<T>{static_cast<T>(sum / count),
                                                  static_cast<T>(product * scale / count) * static_cast<T>(scale)}
                                  : Correction<T>{0, 0};
}

// d x = weight inverse (grad - d bias / n - h d weight / n)
template <class E, int size, class T = ComputeType<E>>
__global__ void input_gradients(Channels shape, std::int64_t packs, const E* __restrict__ x, const E* __restrict__ grad,
                                Values mean, Values inverse, Values weight,
                                const Correction<T>* __restrict__ corrections, E* __restrict__ x_grad) {
  for (std::int64_t p = thread_of_grid(); p < packs; p += threads_of_grid()) {
    const std::int64_t channel = shape.channel_of(p * size);
    const T center = mean.get<T>(channel), factor = inverse.get<T>(channel) * weight.get<T>(channel);
    const Correction<T> correction = corrections[channel];
    const auto inputs = load_pack<size>(x + p * size, true);
    const auto grads = load_pack<size>(grad + p * size, true);
    Pack<E, size> to;
    for (int i = 0; i < size; ++i)
      to.elements[i] = static_cast<E>(factor * (static_cast<T>(grads.elements[i]) - correction.shift -
                                                (static_cast<T>(inputs.elements[i]) - center) * correction.slope));
    store_pack(to, x_grad + p * size, true);
  }
}

// Calls visit.template operator()<size>() with the elements that a thread takes at once: 16 bytes of one channel, or
// one element where rows or memory are not aligned to so much.
template <class E, class Visit, class... Pointers>
void visit_pack_size(const Channels& shape, Visit visit, const Pointers*... pointers) {
  constexpr int wide = pack_size<E>;
  if (shape.inner.divisor() % wide == 0 && (is_aligned<wide>(pointers) && ...))
    visit.template operator()<wide>();
  else
    visit.template operator()<1>();
}

}  // namespace

void batch_statistics(DeviceContext& device, const View& x, std::int64_t outer, std::int64_t inner, double eps,
                      const View& mean, const View& inverse, const View& variance) {
  if (element_count(x) == 0) return;
  const char* operation = "batch_statistics";
  const Channels shape(x, outer, inner);
  const Values mean_values = values(device, operation, mean), inverse_values = values(device, operation, inverse);
  const Values variance_values = values(device, operation, variance);
  visit_floating(device, operation, x.dtype, [&]<class E>() {
    using T = ComputeType<E>;
    const std::int64_t channels = shape.channels.divisor();
    const Scratch parts(device.memory, sizeof(T) * static_cast<std::size_t>(2 * channels * shape.parts));
    T *means = parts.data<T>(), *squares = means + channels * shape.parts;
    const E* from = elements<E>(x);
    visit_pack_size<E>(
        shape,
        [&]<int size>() {
          launch(device, part_statistics<E, size>, shape.grid(), block_threads, 0, shape, from, means, squares);
        },
        from);
    launch(device, merge_statistics<T>, grid_of_threads(device, channels), block_threads, 0, shape, means, squares, eps,
           mean_values, inverse_values, variance_values);
  });
}

void inverse_deviation(DeviceContext& device, const View& variance, double eps, const View& out) {
  const std::int64_t count = element_count(variance);
  launch(device, inverse_of, grid_of_threads(device, count), block_threads, 0, count,
         values(device, "inverse_deviation", variance), eps, values(device, "inverse_deviation", out));
}

void batch_norm(DeviceContext& device, const View& x, std::int64_t outer, std::int64_t inner, const View& mean,
                const View& inverse, const View& weight, const View& bias, const View& out) {
  if (element_count(x) == 0) return;
  const char* operation = "batch_norm";
  const Channels shape(x, outer, inner);
  const Values mean_values = values(device, operation, mean), inverse_values = values(device, operation, inverse);
  const Values weight_values = values(device, operation, weight), bias_values = values(device, operation, bias);
  visit_floating(device, operation, x.dtype, [&]<class E>() {
    const E* from = elements<E>(x);
    E* to = writable<E>(out);
    visit_pack_size<E>(
        shape,
        [&]<int size>() {
          const std::int64_t packs = shape.elements() / size;
          launch(device, normalize<E, size>, grid_of_threads(device, packs), block_threads, 0, shape, packs, from,
                 mean_values, inverse_values, weight_values, bias_values, to);
        },
        from, to);
  });
}

void batch_norm_backward(DeviceContext& device, const View& x, const View& grad, std::int64_t outer, std::int64_t inner,
                         const View& mean, const View& inverse, const View& weight, bool training, const View& x_grad,
                         const View& weight_grad, const View& bias_grad) {
  if (element_count(x) == 0) return;
  const char* operation = "batch_norm_backward";
  const Channels shape(x, outer, inner);
  const Values mean_values = values(device, operation, mean), inverse_values = values(device, operation, inverse);
  const Values weight_values = values(device, operation, weight);
  const Values weight_grads = values(device, operation, weight_grad), bias_grads = values(device, operation, bias_grad);
  visit_floating(device, operation, x.dtype, [&]<class E>() {
    using T = ComputeType<E>;
    const std::int64_t channels = shape.channels.divisor();
    const Scratch parts(device.memory, sizeof(T) * static_cast<std::size_t>(2 * channels * shape.parts));
    const Scratch corrections(device.memory, sizeof(Correction<T>) * static_cast<std::size_t>(channels));
    T *sums = parts.data<T>(), *products = sums + channels * shape.parts;
    auto* correction = corrections.data<Correction<T>>();
    const E *inputs = elements<E>(x), *grads = elements<E>(grad);
    E* to = writable<E>(x_grad);
    visit_pack_size<E>(
        shape,
        [&]<int size>() {
          const std::int64_t packs = shape.elements() / size;
          launch(device, part_gradients<E, size>, shape.grid(), block_threads, 0, shape, inputs, grads, mean_values,
                 sums, products);
          launch(device, merge_gradients<T>, grid_of_threads(device, channels), block_threads, 0, shape, sums, products,
                 inverse_values, training, weight_grads, bias_grads, correction);
          launch(device, input_gradients<E, size>, grid_of_threads(device, packs), block_threads, 0, shape, packs,
                 inputs, grads, mean_values, inverse_values, weight_values, correction, to);
        },
        inputs, grads, to);
  });
}

}  // namespace ddprun::cuda
