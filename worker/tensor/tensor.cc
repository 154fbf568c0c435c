#include "ddprun/worker/tensor/tensor.h"

#include <algorithm>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/storage.h"

namespace ddprun {
namespace {

// Calls visit with a typed pointer to the elements.
template <class Visit>
decltype(auto) with_type(DType dtype, void* data, Visit&& visit) {
  switch (dtype) {
    case DType::float32:
      return visit(static_cast<float*>(data));
    case DType::float64:
      return visit(static_cast<double*>(data));
    case DType::int8:
      return visit(static_cast<std::int8_t*>(data));
    case DType::uint8:
      return visit(static_cast<std::uint8_t*>(data));
    case DType::int32:
      return visit(static_cast<std::int32_t*>(data));
    case DType::int64:
      return visit(static_cast<std::int64_t*>(data));
    case DType::float16:
    case DType::bfloat16:
      break;
  }
  throw make_error(Errc::unsupported, "element by element access to {} tensors is not supported", name_of(dtype));
}

Shape resolved(const Shape& from, Shape to) {
  const auto open = std::find(to.begin(), to.end(), -1);
  const std::int64_t have = numel(from);
  if (open != to.end()) {
    *open = 1;
    const std::int64_t rest = numel(to);
    *open = rest > 0 ? have / rest : 0;
  }
  if (numel(to) != have) {
    throw make_error(Errc::mismatch, "reshape: {} has {} elements, {} has {}", to_string(from), have, to_string(to),
                     numel(to));
  }
  return to;
}

}  // namespace

Tensor Tensor::empty(Shape shape, DType dtype) {
  Tensor result;
  result.numel_ = ddprun::numel(shape);
  result.shape_ = std::move(shape);
  result.dtype_ = dtype;
  result.owner_ = allocate_storage(result.bytes());
  result.data_ = result.owner_.get();
  return result;
}

Tensor Tensor::zeros(Shape shape, DType dtype) {
  Tensor result = empty(std::move(shape), dtype);
  std::memset(result.data_, 0, result.bytes());
  return result;
}

Tensor Tensor::full(Shape shape, double value, DType dtype) {
  Tensor result = empty(std::move(shape), dtype);
  result.fill(value);
  return result;
}

Tensor Tensor::wrap(void* data, Shape shape, DType dtype, std::shared_ptr<void> owner) {
  Tensor result;
  result.numel_ = ddprun::numel(shape);
  result.shape_ = std::move(shape);
  result.dtype_ = dtype;
  result.owner_ = std::move(owner);
  result.data_ = data;
  return result;
}

std::int64_t Tensor::size(int dim) const {
  const int index = dim < 0 ? dim + static_cast<int>(shape_.size()) : dim;
  if (index < 0 || index >= static_cast<int>(shape_.size())) {
    throw make_error(Errc::mismatch, "a tensor of shape {} has no dimension {}", to_string(shape_), dim);
  }
  return shape_[static_cast<std::size_t>(index)];
}

Tensor Tensor::reshape(Shape shape) const {
  Tensor result = *this;
  result.shape_ = resolved(shape_, std::move(shape));
  return result;
}

Tensor Tensor::clone() const {
  Tensor result = empty(shape_, dtype_);
  std::memcpy(result.data_, data_, bytes());
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype);
  with_type(dtype_, data_, [&]<class From>(const From* from) {
    with_type(dtype, result.data_, [&]<class To>(To* to) {
      std::transform(from, from + numel_, to, [](From value) { return static_cast<To>(value); });
    });
  });
  return result;
}

void Tensor::copy_from(const Tensor& other) {
  if (other.numel_ != numel_ || other.dtype_ != dtype_) {
    throw make_error(Errc::mismatch, "cannot copy a {} tensor of shape {} into a {} one of shape {}",
                     name_of(other.dtype_), to_string(other.shape_), name_of(dtype_), to_string(shape_));
  }
  if (data_ != other.data_) std::memmove(data_, other.data_, bytes());
}

void Tensor::fill(double value) {
  if (value == 0) {
    std::memset(data_, 0, bytes());
    return;
  }
  with_type(dtype_, data_, [&]<class T>(T* data) { std::fill(data, data + numel_, static_cast<T>(value)); });
}

double Tensor::item() const {
  if (numel_ != 1) {
    throw make_error(Errc::mismatch, "item() is for tensors with one element; this one has shape {}",
                     to_string(shape_));
  }
  return with_type(dtype_, data_, [](const auto* data) { return static_cast<double>(*data); });
}

void Tensor::throw_dtype(DType asked) const {
  throw make_error(Errc::mismatch, "a {} tensor of shape {} was accessed as {}", name_of(dtype_), to_string(shape_),
                   name_of(asked));
}

void Tensor::check_count(std::size_t count, const Shape& shape) {
  if (static_cast<std::int64_t>(count) != ddprun::numel(shape)) {
    throw make_error(Errc::mismatch, "{} values do not fill a tensor of shape {}", count, to_string(shape));
  }
}

}  // namespace ddprun
