#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "common/dtype.h"
#include "common/float16.h"
#include "worker/tensor/device.h"
#include "worker/tensor/shape.h"
#include "worker/tensor/storage.h"

namespace ddprun {

// An n-dimensional array: a view of a Storage by offset, shape and strides, with one element type. A handle: copying it
// shares the memory, clone() copies it. A const Tensor is a handle that does not change, its elements may.
//
// View operations (reshape, permute, ...) share the memory. Where an operation needs row-major memory it says so, and
// contiguous() makes it; data() insists on it, so that no loop walks a strided tensor as if it were dense.
//
// Images, (batch, channels, height, width), may also be blocked by channels: memory is (batch, channels / b, height,
// width, b), which is what vectorized convolutions work on. Convolutions make such tensors, and later operations keep
// the layout, so that it is converted once and not at every operation. Views of a blocked tensor see a contiguous copy.
//
// Ownership: the storage lives as long as a tensor sees it. Its own memory is 64-byte aligned; wrapped memory is where
//   its owner put it.
// Threads: not synchronized: one writer, or many readers.
// Errors: a wrong dtype, shape or device is Errc::mismatch naming both. What a CUDA device fails to do is reported by a
//   later call that copies to the host, as Errc::internal or unsupported.
class Tensor {
 public:
  Tensor() = default;  // undefined: no memory, shape [0]

  static Tensor empty(const Shape& shape, DType dtype = DType::float32, Device device = {});  // uninitialized
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32, Device device = {});
  // Makes an uninitialized tensor in page-locked memory of the host (Storage::allocate_pinned()).
  static Tensor empty_pinned(const Shape& shape, DType dtype);
  // Makes an uninitialized tensor with the shape, dtype, device and, where it is dense, layout of another.
  static Tensor empty_like(const Tensor& other);
  // Makes an uninitialized tensor blocked by channels; the number of channels is a multiple of block.
  static Tensor empty_blocked(const Shape& shape, std::int64_t block, DType dtype, Device device);
  static Tensor zeros_like(const Tensor& other) { return zeros(other.shape(), other.dtype(), other.device()); }
  // Makes a copy of the values; their number has to be that of the shape.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  // Wraps memory from outside, such as a slice of a gradient bucket: at least numel(shape) elements, kept alive by
  // owner (which may be empty if the memory outlives the tensor anyway).
  static Tensor wrap(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner, Device device = {});

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  // Strides are in elements. Throws Errc::mismatch for a blocked tensor, which has none.
  const Strides& strides() const {
    if (channel_block_ != 0) throw_blocked();
    return strides_;
  }
  std::int64_t channel_block() const { return channel_block_; }  // adjacent channels in memory; 0 if not blocked
  std::int64_t dim() const { return static_cast<std::int64_t>(shape_.size()); }
  std::int64_t size(std::int64_t dim) const;  // negative counts from the end
  std::int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device() : Device{}; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }  // those of the elements
  bool is_contiguous() const { return contiguous_; }                                        // row-major
  bool is_dense() const { return contiguous_ || channel_block_ != 0; }                      // row-major or blocked

  // Returns the first element, for loops of the host. Throws Errc::mismatch if T is not the element type, for strided
  // memory, and for memory of a CUDA device.
  template <class T>
  T* data() {
    check_access(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  template <class T>
  const T* data() const {
    check_access(dtype_of<T>);
    return static_cast<const T*>(raw());
  }
  // Returns the elements of dense memory in its own order, for loops over single elements. Throws what data() throws.
  template <class T>
  T* elements() {
    check_elements(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  template <class T>
  const T* elements() const {
    check_elements(dtype_of<T>);
    return static_cast<const T*>(raw());
  }
  // Returns the first element, whatever type and strides; on a CUDA device, an address that the host cannot read.
  void* raw() { return data_; }
  const void* raw() const { return data_; }

  // Views. Errors: Errc::usage for a dimension or range that does not exist.
  Tensor reshape(Shape shape) const;  // one size may be -1: what is left. Strided: if a view exists
  Tensor permute(const std::vector<std::int64_t>& dims) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  Tensor select(std::int64_t dim, std::int64_t index) const;  // without that dimension
  Tensor expand(const Shape& shape) const;                    // broadcast: sizes of 1 are repeated without memory

  // Returns a view of a blocked tensor as (batch, channels / block, block, height, width), strided.
  Tensor by_blocks() const;

  Tensor contiguous() const;                       // itself where it is
  Tensor dense() const;                            // itself where it is, else contiguous
  Tensor in_layout_of(const Tensor& other) const;  // for a dense tensor of this shape; itself where it has it
  Tensor clone() const;                            // dense
  // Keeps the layout; itself where nothing changes. Rounds to nearest even; undefined beyond an integer type's range.
  Tensor to(DType dtype) const;
  // The result is row-major. The host waits where it receives the values or gives pinned memory; so does copy_from().
  Tensor to(Device device) const;
  void copy_from(const Tensor& other);  // same number of elements and dtype, both contiguous; any two devices
  void fill(double value);
  double item() const;  // requires one element; waits for a CUDA device

  // Returns true when no other handle shares the memory, so that it may be changed in place unseen.
  bool sole_owner() const { return storage_.use_count() == 1; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  std::uint64_t version() const { return storage_ ? storage_->version() : 0; }

 private:
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, std::int64_t offset,
         DType dtype);
  Tensor view(const Shape& shape, const Strides& strides, std::int64_t offset = 0) const;

  void check_access(DType asked) const {
    if (asked != dtype_ || !contiguous_ || !on_host_) throw_access(asked);
  }
  void check_elements(DType asked) const {
    if (channel_block_ == 0) check_access(asked);
  }
  [[noreturn]] void throw_access(DType asked) const;
  [[noreturn]] void throw_blocked() const;
  static void check_count(std::size_t count, const Shape& shape);

  std::shared_ptr<Storage> storage_;
  void* data_ = nullptr;
  Shape shape_{0};
  Strides strides_{1};
  std::int64_t numel_ = 0;
  std::int64_t channel_block_ = 0;
  DType dtype_ = DType::float32;
  bool contiguous_ = true;
  bool on_host_ = true;
};

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  check_count(values.size(), shape);
  Tensor result = empty(shape, dtype_of<T>);
  if (!values.empty()) std::memcpy(result.raw(), values.data(), result.bytes());
  return result;
}

}  // namespace ddprun
