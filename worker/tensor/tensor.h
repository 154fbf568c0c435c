#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/tensor/shape.h"

namespace ddprun {

// A handle to contiguous row-major memory of one element type. Copying the handle shares the memory; clone() copies it.
// A const Tensor is a handle that does not change, its elements may. Memory of its own is 64-byte aligned; wrapped
// memory is where its owner put it. Errors: a wrong dtype or shape is Errc::mismatch naming both. Not synchronised: one
// writer, or many readers.
class Tensor {
 public:
  Tensor() = default;  // undefined: no memory, shape [0]

  static Tensor empty(Shape shape, DType dtype = DType::float32);  // uninitialised
  static Tensor zeros(Shape shape, DType dtype = DType::float32);
  static Tensor full(Shape shape, double value, DType dtype = DType::float32);
  // A copy of the values; their number has to be that of the shape.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  // Memory from outside, such as a slice of a gradient bucket: at least numel(shape) elements, kept alive by owner
  // (which may be empty if the memory outlives the tensor anyway).
  static Tensor wrap(void* data, Shape shape, DType dtype, std::shared_ptr<void> owner);

  bool defined() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim() const { return static_cast<std::int64_t>(shape_.size()); }
  std::int64_t size(int dim) const;  // negative counts from the end
  std::int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }

  // Throws Errc::mismatch if T is not the element type. The 16-bit floats are reached through raw().
  template <class T>
  T* data() {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<const T*>(data_);
  }
  void* raw() { return data_; }
  const void* raw() const { return data_; }

  Tensor reshape(Shape shape) const;  // shares the memory; one size may be -1: what is left
  Tensor clone() const;
  Tensor to(DType dtype) const;         // itself when it has that dtype already; the 16-bit floats: Errc::unsupported
  void copy_from(const Tensor& other);  // same number of elements and dtype
  void fill(double value);
  double item() const;  // of a tensor with one element

  // True when no other handle shares the memory, so that it may be changed in place unseen.
  bool sole_owner() const { return owner_.use_count() == 1; }

 private:
  void check_dtype(DType asked) const {
    if (asked != dtype_) throw_dtype(asked);
  }
  [[noreturn]] void throw_dtype(DType asked) const;
  static void check_count(std::size_t count, const Shape& shape);

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_{0};
  std::int64_t numel_ = 0;
  DType dtype_ = DType::float32;
};

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  check_count(values.size(), shape);
  Tensor result = empty(shape, dtype_of<T>);
  if (!values.empty()) std::memcpy(result.raw(), values.data(), result.bytes());
  return result;
}

}  // namespace ddprun
