#include "worker/tensor/kernels.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cuda/table.h"
#include "worker/tensor/shape_only.h"
#include "worker/tensor/shapes/table.h"

namespace ddprun::kernels {

void throw_missing(const char* operation, DType dtype, Device device) {
  throw make_error(Errc::unsupported, "{} of {} tensors is not supported on {}", operation, name_of(dtype),
                   to_string(device));
}

namespace {

// The table is made when the first tensor asks for it: the module is opened then.
const Table& table_of_cuda() {
  static const Table cuda = cuda::make_table();
  return cuda;
}

}  // namespace

const Table& table(Device device) {
  static const Table cpu = cpu::make_table(), shapes = shapes::make_table();
  if (device.type != DeviceType::cpu) return table_of_cuda();
  return shapes_only() ? shapes : cpu;
}

Levels levels_of(const ValueRange& range) {
  const float low = std::min(range.min, 0.0F), high = std::max(range.max, 0.0F);
  Levels levels;
  if (high > low) levels.scale = (high - low) / static_cast<float>(Levels::highest);
  levels.zero = static_cast<std::int32_t>(std::lround(-low / levels.scale));
  return levels;
}

void copy(const Tensor& from, Tensor& to) {
  // Copies from a CUDA device to the host are the device's as well.
  of(to.device().type == DeviceType::cpu ? from : to).copy(from, to);
  to.storage()->bump_version();
}

void fill(Tensor& to, double value) {
  of(to).fill(to, value);
  to.storage()->bump_version();
}

Tensor unary(Unary function, const Tensor& x, const Arguments& arguments) {
  Tensor y = Tensor::empty_like(x);
  of(x).unary(function, arguments, x, y);
  return y;
}

namespace {

Tensor binary(Binary function, const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty_like(a);
  const bool blocked = out.channel_block() != 0 || b.channel_block() != 0;
  of(a).binary(function, {}, a, blocked ? b.in_layout_of(out) : b, out);
  return out;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return binary(Binary::add, a, b);
}

void add_in_place(Tensor& a, const Tensor& b) {
  const bool blocked = a.channel_block() != 0 || b.channel_block() != 0;
  of(a).binary(Binary::add, {}, a, blocked ? b.in_layout_of(a) : b, a);
  a.storage()->bump_version();
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  return binary(Binary::multiply, a, b);
}

Tensor scale(const Tensor& a, double factor) {
  return unary(Unary::scale, a, {.a = factor});
}

Tensor sum(const Tensor& x) {
  Tensor out = Tensor::empty({}, x.dtype(), x.device());
  of(x).sum(x, {1, x.numel(), 1}, out);
  return out;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor rest = x;
  // Sums one run of broadcast dimensions after the other.
  const std::size_t lead = x.shape().size() - shape.size();
  const auto is_broadcast = [&](std::size_t i) { return i < lead || (shape[i - lead] == 1 && x.shape()[i] != 1); };
  std::int64_t outer = 1;  // the size of the dimensions that are kept before the run
  for (std::size_t i = 0; i < x.shape().size();) {
    if (!is_broadcast(i)) {
      outer *= x.shape()[i++];
      continue;
    }
    std::int64_t run = 1;
    while (i < x.shape().size() && is_broadcast(i)) run *= x.shape()[i++];
    std::int64_t inner = 1;
    for (std::size_t j = i; j < x.shape().size(); ++j) inner *= x.shape()[j];
    Tensor reduced = Tensor::empty({outer, inner}, x.dtype(), x.device());
    of(x).sum(rest, {outer, run, inner}, reduced);
    rest = std::move(reduced);
  }
  return rest.reshape(shape);
}

Tensor argmax_rows(const Tensor& scores) {
  const Axis rows{scores.size(0), scores.size(1), 1};
  Tensor values = Tensor::empty({rows.outer}, scores.dtype(), scores.device());
  Tensor index = Tensor::empty({rows.outer}, DType::int64, scores.device());
  of(scores).max(scores, rows, values, index);
  return index;
}

namespace {

// x - x is 0 for a finite value and NaN otherwise, so the sum is 0 or NaN.
Tensor zero_if_finite(const Tensor& x) {
  const Tensor flat = x.contiguous();
  Tensor zero = Tensor::empty_like(flat);
  of(flat).binary(Binary::subtract, {}, flat, flat, zero);
  return zero;
}

}  // namespace

bool all_finite(const Tensor& x) {
  return !is_floating(x.dtype()) || sum(zero_if_finite(x)).item() == 0;
}

bool all_finite(const std::vector<Tensor>& tensors) {
  return std::ranges::all_of(tensors, [](const Tensor& x) { return all_finite(x); });
}

}  // namespace ddprun::kernels
