#include <algorithm>

#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/map.h"
#include "worker/tensor/cuda/module/transpose.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

struct Identity {
  template <class Word>
  DDPRUN_HOST_DEVICE Word operator()(Word x) const {
    return x;
  }
};

template <class To>
struct Cast {
  template <class From>
  DDPRUN_HOST_DEVICE To operator()(From x) const {
    return To(static_cast<float>(x));
  }
};

template <class T>
struct Constant {
  T value;

  DDPRUN_HOST_DEVICE T operator()() const { return value; }
};

// --- operands of different shapes

bool same_shape(const View& a, const View& b) {
  if (a.rank != b.rank) return false;
  return std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin());
}

// Returns a dense view with the shape of another one of as many elements.
View shaped_like(const View& dense, const View& other) {
  View result{.data = dense.data, .dtype = dense.dtype, .rank = other.rank, .shape = other.shape};
  std::int64_t stride = 1;
  for (int dim = other.rank - 1; dim >= 0; --dim) {
    const auto at = static_cast<std::size_t>(dim);
    result.strides[at] = stride;
    stride *= other.shape[at];
  }
  return result;
}

bool is_dense(const View& view) {
  return StridedIndex<1>({&view}).dense();
}

// Copies elements that have the same number in row-major order, whatever the shapes.
template <class Word>
__global__ void __launch_bounds__(block_threads, 1)
    move_kernel(StridedIndex<1> from_index, const Word* from, StridedIndex<1> to_index, Word* to, std::int64_t count) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    std::int64_t source[1], target[1];
    from_index.locate(i, source);
    to_index.locate(i, target);
    to[target[0]] = from[source[0]];
  }
}

// --- any pair of types, by way of float64: exact but for integers beyond 2^53, which round

__device__ double load_as_double(DType dtype, const void* memory, std::int64_t at) {
  switch (dtype) {
    case DType::float32:
      return static_cast<double>(static_cast<const float*>(memory)[at]);
    case DType::float64:
      return static_cast<const double*>(memory)[at];
    case DType::float16:
      return static_cast<double>(static_cast<float>(static_cast<const Float16*>(memory)[at]));
    case DType::bfloat16:
      return static_cast<double>(static_cast<float>(static_cast<const BFloat16*>(memory)[at]));
    case DType::int8:
      return static_cast<double>(static_cast<const std::int8_t*>(memory)[at]);
    case DType::uint8:
      return static_cast<double>(static_cast<const std::uint8_t*>(memory)[at]);
    case DType::int32:
      return static_cast<double>(static_cast<const std::int32_t*>(memory)[at]);
    case DType::int64:
      return static_cast<double>(static_cast<const std::int64_t*>(memory)[at]);
  }
  return 0;
}

template <class T>
__device__ void store_as(double value, void* memory, std::int64_t at) {
  static_cast<T*>(memory)[at] = T(static_cast<ComputeType<T>>(value));
}

__device__ void store_from_double(double value, DType dtype, void* memory, std::int64_t at) {
  switch (dtype) {
    case DType::float32:
      return store_as<float>(value, memory, at);
    case DType::float64:
      return store_as<double>(value, memory, at);
    case DType::float16:
      return store_as<Float16>(value, memory, at);
    case DType::bfloat16:
      return store_as<BFloat16>(value, memory, at);
    case DType::int8:
      return store_as<std::int8_t>(value, memory, at);
    case DType::uint8:
      return store_as<std::uint8_t>(value, memory, at);
    case DType::int32:
      return store_as<std::int32_t>(value, memory, at);
    case DType::int64:
      return store_as<std::int64_t>(value, memory, at);
  }
}

__global__ void __launch_bounds__(block_threads, 1)
    convert_kernel(StridedIndex<1> from_index, DType from_dtype, const void* from, StridedIndex<1> to_index,
                   DType to_dtype, void* to, std::int64_t count) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    std::int64_t source[1], target[1];
    from_index.locate(i, source);
    to_index.locate(i, target);
    store_from_double(load_as_double(from_dtype, from, source[0]), to_dtype, to, target[0]);
  }
}

// --- the ways to copy; operands of one shape but where said

void move(DeviceContext& device, const View& from, const View& to) {
  if (const auto transposition = transposition_of(from, to)) return transpose(device, *transposition, from, to);
  visit_word(to.dtype, [&]<class Word>() { map<Word, Word>(device, Identity{}, to, from); });
}

void move_reshaped(DeviceContext& device, const View& from, const View& to, std::int64_t count) {
  visit_word(to.dtype, [&]<class Word>() {
    launch(device, move_kernel<Word>, grid_of_threads(device, count), block_threads, 0, StridedIndex<1>({&from}),
           elements<Word>(from), StridedIndex<1>({&to}), writable<Word>(to), count);
  });
}

void convert(DeviceContext& device, const View& from, const View& to, std::int64_t count) {
  launch(device, convert_kernel, grid_of_threads(device, count), block_threads, 0, StridedIndex<1>({&from}), from.dtype,
         static_cast<const void*>(from.data), StridedIndex<1>({&to}), to.dtype, to.data, count);
}

// Makes the conversions of mixed precision; returns whether this is one.
bool cast(DeviceContext& device, const View& from, const View& to) {
  const auto is = [&](DType source, DType target) { return from.dtype == source && to.dtype == target; };
  if (is(DType::float32, DType::bfloat16))
    map<BFloat16, float>(device, Cast<BFloat16>{}, to, from);
  else if (is(DType::float32, DType::float16))
    map<Float16, float>(device, Cast<Float16>{}, to, from);
  else if (is(DType::bfloat16, DType::float32))
    map<float, BFloat16>(device, Cast<float>{}, to, from);
  else if (is(DType::float16, DType::float32))
    map<float, Float16>(device, Cast<float>{}, to, from);
  else
    return false;
  return true;
}

void copy_of_one_shape(DeviceContext& device, const View& from, const View& to, std::int64_t count) {
  if (from.dtype == to.dtype) return move(device, from, to);
  if (!cast(device, from, to)) convert(device, from, to, count);
}

}  // namespace

void copy(DeviceContext& device, const View& from, const View& to) {
  const std::int64_t count = element_count(to);
  if (count == 0 || (from.data == to.data && from.dtype == to.dtype && is_dense(from) && is_dense(to))) return;
  if (same_shape(from, to)) return copy_of_one_shape(device, from, to, count);
  if (is_dense(from)) return copy_of_one_shape(device, shaped_like(from, to), to, count);
  if (is_dense(to)) return copy_of_one_shape(device, from, shaped_like(to, from), count);
  if (from.dtype == to.dtype) return move_reshaped(device, from, to, count);
  convert(device, from, to, count);
}

void fill(DeviceContext& device, const View& to, double value) {
  visit_any(device, "fill", to.dtype,
            [&]<class T>() { map<T>(device, Constant<T>{T(static_cast<ComputeType<T>>(value))}, to); });
}

}  // namespace ddprun::cuda
