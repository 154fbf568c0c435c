#include <vector>

#include "common/error.h"
#include "worker/tensor/cuda/table.h"

// A copy from one memory to another moves bytes of row-major tensors; where an operand is strided, or the dtypes
// differ, it is made row-major, or converted, on the device.
namespace ddprun::cuda {
namespace {

bool is_on_host(const Tensor& tensor) {
  return tensor.device().type == DeviceType::cpu;
}

void copy_on_device(const Tensor& from, Tensor& to) {
  const CudaDevice& on = device_of(to);
  check(on.api().copy(on.context(), view_of(from), view_of(to)));
}

// Copies row-major tensors of one dtype.
void move_bytes(const Tensor& from, Tensor& to) {
  const std::size_t bytes = from.bytes();
  if (bytes == 0) return;
  if (is_on_host(from)) {
    const CudaDevice& on = device_of(to);
    check(on.api().copy_bytes(on.context(), Queue::compute, Direction::to_device, to.raw(), from.raw(), bytes));
    if (from.storage()->is_pinned()) on.synchronize();  // the caller may write to it as soon as this returns
  } else if (is_on_host(to)) {
    const CudaDevice& on = device_of(from);
    check(on.api().copy_bytes(on.context(), Queue::compute, Direction::to_host, to.raw(), from.raw(), bytes));
    on.synchronize();
  } else {
    const CudaDevice &source = device_of(from), &target = device_of(to);
    check(target.api().copy_peer(target.context(), to.raw(), source.context(), from.raw(), bytes));
  }
}

// Prepares it in the memory where it is; converted there if that is a device.
Tensor prepared(const Tensor& from, DType dtype) {
  if (is_on_host(from) || from.dtype() == dtype) return from.contiguous();
  Tensor converted = Tensor::empty(from.shape(), dtype, from.device());
  copy_on_device(from, converted);
  return converted;
}

void copy_across(const Tensor& given, Tensor& to) {
  const Tensor from = prepared(given, to.dtype());
  if (to.is_contiguous() && from.dtype() == to.dtype()) return move_bytes(from, to);
  Tensor arrived = Tensor::empty(from.shape(), from.dtype(), to.device());
  move_bytes(from, arrived);
  kernels::copy(arrived, to);
}

void copy(const Tensor& from, Tensor& to) {
  if (from.numel() != to.numel()) {
    throw make_error(Errc::mismatch, "copy: a tensor of shape {} does not fit one of shape {}", to_string(from.shape()),
                     to_string(to.shape()));
  }
  if (from.device() == to.device()) return copy_on_device(from, to);
  copy_across(from, to);
}

void fill(Tensor& to, double value) {
  const CudaDevice& on = device_of(to);
  check(on.api().fill(on.context(), view_of(to), value));
}

void cast_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
  if (from.empty()) return;
  const CudaDevice& on = device_of(from[0]);
  std::vector<View> sources, targets;
  for (std::size_t i = 0; i < from.size(); ++i) {
    sources.push_back(view_of(from[i]));
    targets.push_back(view_of(to[i]));
  }
  check(on.api().cast_all(on.context(), sources.data(), targets.data(), static_cast<std::int64_t>(sources.size())));
}

}  // namespace

void add_copies(const DeviceApi& api, kernels::Table& table) {
  offer(table.copy, copy, api.copy);
  offer(table.cast_all, cast_all, api.cast_all);
  offer(table.fill, fill, api.fill);
}

}  // namespace ddprun::cuda
