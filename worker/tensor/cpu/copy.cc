#include <algorithm>
#include <array>
#include <cstring>

#include "common/error.h"
#include "worker/tensor/cpu/strided.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"

namespace ddprun::cpu {
namespace {

// Converts any pair of types by way of float64 in blocks that stay in the cache: a loop for each type instead of for
// each pair. It is exact but for integers beyond 2^53, which round.
constexpr std::int64_t block = 512;

template <class T>
void load_block(std::int64_t count, const void* from, std::int64_t step, double* to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<double>(static_cast<ComputeType<T>>(static_cast<const T*>(from)[i * step]));
}
template <class T>
void store_block(std::int64_t count, const double* from, void* to, std::int64_t step) {
  for (std::int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i * step] = T(static_cast<ComputeType<T>>(from[i]));
}

template <class T>
const T* at(const Tensor& tensor, std::int64_t offset) {
  return static_cast<const T*>(tensor.raw()) + offset;
}
template <class T>
T* at(Tensor& tensor, std::int64_t offset) {
  return static_cast<T*>(tensor.raw()) + offset;
}

struct RowCopy {
  std::int64_t from, to;  // offsets
  std::int64_t count;
  std::int64_t from_step, to_step;
};

void convert_row(const Tensor& from, Tensor& to, const RowCopy& row) {
  std::array<double, block> buffer;
  for (std::int64_t start = 0; start < row.count; start += block) {
    const std::int64_t count = std::min(block, row.count - start);
    visit_any(from.dtype(), [&]<class T>() {
      load_block<T>(count, at<T>(from, row.from + start * row.from_step), row.from_step, buffer.data());
    });
    visit_any(to.dtype(), [&]<class T>() {
      store_block<T>(count, buffer.data(), at<T>(to, row.to + start * row.to_step), row.to_step);
    });
  }
}

// Copies elements of so many bytes, whatever they mean.
template <class Word>
void move_row(const Tensor& from, Tensor& to, const RowCopy& row) {
  const Word* source = at<Word>(from, row.from);
  Word* target = at<Word>(to, row.to);
  if (row.from_step == 1 && row.to_step == 1) {
    std::memcpy(target, source, static_cast<std::size_t>(row.count) * sizeof(Word));
  } else {
    for (std::int64_t i = 0; i < row.count; ++i) target[i * row.to_step] = source[i * row.from_step];
  }
}

// Makes the conversions of mixed precision.
template <class From, class To>
DDPRUN_VECTORIZED void cast_row(std::int64_t count, const From* from, To* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
}
template <class Half>
void cast(const Tensor& from, Tensor& to, const RowCopy& row) {
  if (from.dtype() == DType::float32)
    cast_row(row.count, at<float>(from, row.from), at<Half>(to, row.to));
  else
    cast_row(row.count, at<Half>(from, row.from), at<float>(to, row.to));
}
bool is_cast(const Tensor& from, const Tensor& to, DType half) {
  return (from.dtype() == half && to.dtype() == DType::float32) ||
         (to.dtype() == half && from.dtype() == DType::float32);
}
// Converts neighbouring elements; returns whether there is a conversion for these types.
bool cast_in_mixed_precision(const Tensor& from, Tensor& to, const RowCopy& row) {
  if (row.from_step != 1 || row.to_step != 1) return false;
  if (is_cast(from, to, DType::bfloat16))
    cast<BFloat16>(from, to, row);
  else if (is_cast(from, to, DType::float16))
    cast<Float16>(from, to, row);
  else
    return false;
  return true;
}

void copy_row(const Tensor& from, Tensor& to, const RowCopy& row) {
  if (from.dtype() != to.dtype()) {
    if (!cast_in_mixed_precision(from, to, row)) convert_row(from, to, row);
    return;
  }
  switch (size_of(from.dtype())) {
    case 1:
      return move_row<std::uint8_t>(from, to, row);
    case 2:
      return move_row<std::uint16_t>(from, to, row);
    case 4:
      return move_row<std::uint32_t>(from, to, row);
    default:
      return move_row<std::uint64_t>(from, to, row);
  }
}

// Returns the same elements with the shape of another tensor.
Tensor shaped_like(const Tensor& from, const Tensor& to) {
  return from.shape() == to.shape() ? from : from.reshape(to.shape());
}

// Copies between tensors whose elements lie in memory in the same order.
void copy_dense(const Tensor& from, Tensor& to) {
  if (from.dtype() != to.dtype()) return copy_row(from, to, {0, 0, to.numel(), 1, 1});
  if (from.raw() != to.raw()) std::memmove(to.raw(), from.raw(), to.bytes());
}

// Copies a blocked tensor as a strided one, with the other operand in the same five dimensions.
void copy_blocks(const Tensor& from, Tensor& to);

void copy(const Tensor& given, Tensor& to) {
  if (given.numel() != to.numel()) {
    throw make_error(Errc::mismatch, "copy: a tensor of shape {} does not fit one of shape {}",
                     to_string(given.shape()), to_string(to.shape()));
  }
  const bool same_layout = given.is_dense() && to.is_dense() && given.channel_block() == to.channel_block();
  if (same_layout) return copy_dense(given, to);
  if (given.channel_block() != 0 || to.channel_block() != 0) return copy_blocks(given, to);
  const Tensor from = shaped_like(given, to);
  const StridedLoop<2> loop(to.shape(), {&from.strides(), &to.strides()});
  loop.for_each_row([&](const auto& offsets, std::int64_t count, const auto& steps) {
    copy_row(from, to, {offsets[0], offsets[1], count, steps[0], steps[1]});
  });
}

void copy_blocks(const Tensor& from, Tensor& to) {
  if (from.channel_block() != 0 && to.channel_block() != 0) return copy(from.contiguous(), to);
  const Shape shape = from.channel_block() != 0 ? from.by_blocks().shape() : to.by_blocks().shape();
  const Tensor source = from.channel_block() != 0 ? from.by_blocks() : from.reshape(shape);
  Tensor target = to.channel_block() != 0 ? to.by_blocks() : to.reshape(shape);
  copy(source, target);
}

void fill(Tensor& to, double value) {
  if (value == 0 && to.is_dense()) {
    std::memset(to.raw(), 0, to.bytes());
    return;
  }
  visit_any(to.dtype(), [&]<class T>() {
    const T element = T(static_cast<ComputeType<T>>(value));
    if (to.is_dense()) {
      std::fill_n(to.elements<T>(), to.numel(), element);
      return;
    }
    const StridedLoop<1> loop(to.shape(), {&to.strides()});
    loop.for_each_row([&](const auto& at, std::int64_t count, const auto& by) {
      T* row = static_cast<T*>(to.raw()) + at[0];
      for (std::int64_t i = 0; i < count; ++i) row[i * by[0]] = element;
    });
  });
}

void cast_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    Tensor target = to[i];
    copy(from[i], target);
  }
}

}  // namespace

void add_copies(kernels::Table& table) {
  table.copy = copy;
  table.cast_all = cast_all;
  table.fill = fill;
}

}  // namespace ddprun::cpu
