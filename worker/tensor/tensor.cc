#include "worker/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/error.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/shape_only.h"

namespace ddprun {
namespace {

Shape with_open_size(const Shape& from, Shape to) {
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

bool is_row_major(const Shape& shape, const Strides& strides) {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

// Returns strides that make the same elements appear in another shape, in the same order; none where memory has to
// move. Each run of old dimensions that are dense among themselves must be made up of whole new dimensions.
std::optional<Strides> strides_of_view(const Shape& from, const Strides& strides, const Shape& to) {
  Strides result = Shape::filled(to.size(), 0);
  std::size_t next = to.size();
  std::int64_t old_count = 1, new_count = 1;
  std::int64_t stride = 0;
  for (std::size_t i = from.size(); i-- > 0;) {
    if (old_count == 1) stride = strides[i];
    old_count *= from[i];
    const bool run_ends = i == 0 || (from[i - 1] != 1 && strides[i - 1] != old_count * stride);
    if (!run_ends) continue;
    while (next > 0 && (new_count < old_count || to[next - 1] == 1)) {
      --next;
      result[next] = new_count * stride;
      new_count *= to[next];
    }
    if (new_count != old_count) return std::nullopt;
    old_count = new_count = 1;
  }
  return result;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, std::int64_t offset,
               DType dtype)
    : storage_(std::move(storage)),
      data_(static_cast<std::byte*>(storage_->data()) + static_cast<std::ptrdiff_t>(size_of(dtype)) * offset),
      shape_(shape),
      strides_(strides),
      numel_(ddprun::numel(shape)),
      dtype_(dtype),
      contiguous_(is_row_major(shape, strides)),
      on_host_(storage_->device().type == DeviceType::cpu) {}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  const auto bytes = static_cast<std::size_t>(ddprun::numel(shape)) * size_of(dtype);
  return {Storage::allocate(bytes, device), shape, contiguous_strides(shape), 0, dtype};
}

Tensor Tensor::empty_like(const Tensor& other) {
  if (other.channel_block_ != 0) return empty_blocked(other.shape_, other.channel_block_, other.dtype_, other.device());
  return empty(other.shape_, other.dtype_, other.device());
}

Tensor Tensor::empty_blocked(const Shape& shape, std::int64_t block, DType dtype, Device device) {
  if (shape.size() != 4 || block < 1 || shape[1] % block != 0)
    throw make_error(Errc::usage, "a tensor of shape {} cannot be blocked by {} channels", to_string(shape), block);
  Tensor result = empty(shape, dtype, device);
  result.channel_block_ = block;
  result.contiguous_ = false;
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  result.fill(0);
  return result;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  result.fill(value);
  return result;
}

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(ddprun::numel(shape)) * size_of(dtype);
  return {Storage::allocate_pinned(bytes), shape, contiguous_strides(shape), 0, dtype};
}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner, Device device) {
  const auto bytes = static_cast<std::size_t>(ddprun::numel(shape)) * size_of(dtype);
  return {Storage::wrap(data, bytes, device, std::move(owner)), shape, contiguous_strides(shape), 0, dtype};
}

std::int64_t Tensor::size(std::int64_t dim) const {
  const auto rank = static_cast<std::int64_t>(shape_.size());
  const std::int64_t index = dim < 0 ? dim + rank : dim;
  if (index < 0 || index >= rank) {
    throw make_error(Errc::mismatch, "a tensor of shape {} has no dimension {}", to_string(shape_), dim);
  }
  return shape_[static_cast<std::size_t>(index)];
}

Tensor Tensor::view(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  Tensor result = *this;
  result.data_ = static_cast<std::byte*>(data_) + static_cast<std::ptrdiff_t>(size_of(dtype_)) * offset;
  result.shape_ = shape;
  result.strides_ = strides;
  result.numel_ = ddprun::numel(shape);
  result.contiguous_ = is_row_major(shape, strides);
  return result;
}

Tensor Tensor::by_blocks() const {
  const std::int64_t b = channel_block_, height = size(2), width = size(3);
  const std::int64_t row = width * b, image = height * row;
  Tensor dense = *this;
  dense.channel_block_ = 0;
  return dense.view({shape_[0], shape_[1] / b, b, height, width}, {shape_[1] / b * image, image, 1, row, b});
}

Tensor Tensor::reshape(Shape shape) const {
  if (channel_block_ != 0) return contiguous().reshape(shape);
  const Shape to = with_open_size(shape_, std::move(shape));
  if (contiguous_) return view(to, contiguous_strides(to));
  if (const auto strides = strides_of_view(shape_, strides_, to)) return view(to, *strides);
  throw make_error(Errc::usage,
                   "reshape: the strided tensor of shape {} has no view of shape {}; call contiguous() first",
                   to_string(shape_), to_string(to));
}

Tensor Tensor::permute(const std::vector<std::int64_t>& dims) const {
  if (channel_block_ != 0) return contiguous().permute(dims);
  std::array<bool, Shape::max_rank> seen{};
  Shape shape;
  Strides strides;
  for (const std::int64_t dim : dims) {
    const std::size_t from = checked_dim("permute", dim, shape_.size());
    if (std::exchange(seen[from], true)) throw make_error(Errc::usage, "permute: dimension {} is given twice", dim);
    shape.push_back(shape_[from]);
    strides.push_back(strides_[from]);
  }
  if (shape.size() != shape_.size()) {
    throw make_error(Errc::usage, "permute: {} dimensions are given for a tensor of shape {}", dims.size(),
                     to_string(shape_));
  }
  return view(shape, strides);
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  if (channel_block_ != 0) return contiguous().transpose(dim0, dim1);
  const std::size_t a = checked_dim("transpose", dim0, shape_.size()),
                    b = checked_dim("transpose", dim1, shape_.size());
  Shape shape = shape_;
  Strides strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return view(shape, strides);
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  if (channel_block_ != 0) return contiguous().slice(dim, start, length);
  const std::size_t at = checked_dim("slice", dim, shape_.size());
  if (start < 0 || length < 0 || start + length > shape_[at]) {
    throw make_error(Errc::usage, "slice: [{}, {}) is not within dimension {} of a tensor of shape {}", start,
                     start + length, dim, to_string(shape_));
  }
  Shape shape = shape_;
  shape[at] = length;
  return view(shape, strides_, start * strides_[at]);
}

Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  const std::size_t at = checked_dim("select", dim, shape_.size());
  Tensor one = slice(dim, index, 1);
  Shape shape = one.shape_;
  Strides strides = one.strides_;
  shape.erase(at);
  strides.erase(at);
  return one.view(shape, strides);
}

Tensor Tensor::expand(const Shape& shape) const {
  if (channel_block_ != 0) return contiguous().expand(shape);
  if (shape == shape_) return *this;
  if (shape.size() < shape_.size() || !(broadcast_shape("expand", shape_, shape) == shape)) {
    throw make_error(Errc::mismatch, "expand: a tensor of shape {} does not broadcast to {}", to_string(shape_),
                     to_string(shape));
  }
  Strides strides = Shape::filled(shape.size(), 0);
  const std::size_t lead = shape.size() - shape_.size();
  for (std::size_t i = 0; i < shape_.size(); ++i) strides[lead + i] = shape_[i] == 1 ? 0 : strides_[i];
  return view(shape, strides);
}

Tensor Tensor::contiguous() const {
  if (contiguous_) return *this;
  Tensor result = empty(shape_, dtype_, device());
  kernels::copy(*this, result);
  return result;
}

Tensor Tensor::dense() const {
  return is_dense() ? *this : contiguous();
}

Tensor Tensor::in_layout_of(const Tensor& other) const {
  if (is_dense() && channel_block_ == other.channel_block_) return *this;
  if (other.channel_block_ == 0) return contiguous();
  Tensor result = empty_blocked(shape_, other.channel_block_, dtype_, device());
  kernels::copy(*this, result);
  return result;
}

Tensor Tensor::clone() const {
  Tensor result = empty_like(*this);
  kernels::copy(*this, result);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result =
      channel_block_ != 0 ? empty_blocked(shape_, channel_block_, dtype, device()) : empty(shape_, dtype, device());
  kernels::copy(*this, result);
  return result;
}

Tensor Tensor::to(Device to) const {
  if (to == device()) return *this;
  Tensor result = empty(shape_, dtype_, to);
  kernels::copy(*this, result);
  return result;
}

void Tensor::copy_from(const Tensor& other) {
  if (other.numel_ != numel_ || other.dtype_ != dtype_ || !contiguous_ || !other.contiguous_) {
    throw make_error(Errc::mismatch, "cannot copy a {} tensor of shape {} into a {} one of shape {}",
                     name_of(other.dtype_), to_string(other.shape_), name_of(dtype_), to_string(shape_));
  }
  if (data_ == other.data_) return;
  if (!on_host_ || !other.on_host_ || shapes_only()) return kernels::copy(other, *this);
  std::memmove(data_, other.data_, bytes());
  storage_->bump_version();
}

void Tensor::fill(double value) {
  kernels::fill(*this, value);
}

double Tensor::item() const {
  if (numel_ != 1) {
    throw make_error(Errc::mismatch, "item() is for tensors with one element; this one has shape {}",
                     to_string(shape_));
  }
  if (!on_host_) return to(Device{}).item();
  if (dtype_ == DType::float32) return static_cast<double>(*static_cast<const float*>(data_));
  double value = 0;
  Tensor wide = wrap(&value, shape_, DType::float64, nullptr, device());
  kernels::copy(*this, wide);
  return value;
}

void Tensor::throw_blocked() const {
  throw make_error(
      Errc::mismatch,
      "a tensor of shape {}, blocked by {} channels, was accessed as strided memory; call contiguous() first",
      to_string(shape_), channel_block_);
}

void Tensor::throw_access(DType asked) const {
  if (channel_block_ != 0) throw_blocked();
  if (asked == dtype_ && contiguous_) {
    throw make_error(Errc::mismatch,
                     "a tensor of shape {} on {} was accessed by code that runs on the host; copy it first",
                     to_string(shape_), to_string(device()));
  }
  if (asked == dtype_) {
    throw make_error(Errc::mismatch, "a tensor of shape {} and strides {} was accessed as contiguous memory",
                     to_string(shape_), to_string(strides_));
  }
  throw make_error(Errc::mismatch, "a {} tensor of shape {} was accessed as {}", name_of(dtype_), to_string(shape_),
                   name_of(asked));
}

void Tensor::check_count(std::size_t count, const Shape& shape) {
  if (static_cast<std::int64_t>(count) != ddprun::numel(shape)) {
    throw make_error(Errc::mismatch, "{} values do not fill a tensor of shape {}", count, to_string(shape));
  }
}

}  // namespace ddprun
