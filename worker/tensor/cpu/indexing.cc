#include <cstring>

#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/visit_dtype.h"

namespace ddprun::cpu {
namespace {

using kernels::Axis;

// Calls visit(position in the index, position of the element that it names) for every index; axis is that of the tensor
// that is indexed.
template <class Visit>
void for_each_index(const Axis& axis, const Tensor& index, Visit visit) {
  const std::int64_t per_outer = axis.outer > 0 ? index.numel() / axis.outer : 0;
  const std::int64_t* chosen = index.data<std::int64_t>();
  for (std::int64_t outer = 0, at = 0; outer < axis.outer; ++outer) {
    for (std::int64_t i = 0; i < per_outer; ++i, ++at)
      visit(at, (outer * axis.n + chosen[at]) * axis.inner + i % axis.inner);
  }
}

void gather(const Tensor& x, const Axis& axis, const Tensor& index, Tensor& out) {
  visit_any(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    for_each_index(axis, index, [=](std::int64_t at, std::int64_t element) { to[at] = from[element]; });
  });
}

void scatter_add(const Tensor& x, const Axis& axis, const Tensor& index, Tensor& out) {
  visit_floating(x.dtype(), [&]<class T>() {
    using C = ComputeType<T>;
    const T* from = x.data<T>();
    T* to = out.data<T>();
    for_each_index(axis, index, [=](std::int64_t at, std::int64_t element) {
      to[element] = T(static_cast<C>(to[element]) + static_cast<C>(from[at]));
    });
  });
}

void scatter(const Tensor& x, const Axis& axis, const Tensor& index, Tensor& out) {
  visit_any(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = out.data<T>();
    for_each_index(axis, index, [=](std::int64_t at, std::int64_t element) { to[element] = from[at]; });
  });
}

void gather_rows(const Tensor& rows, const Tensor& index, Tensor& out) {
  const std::size_t width = rows.shape()[0] > 0 ? rows.bytes() / static_cast<std::size_t>(rows.shape()[0]) : 0;
  const auto* from = static_cast<const std::byte*>(rows.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  const std::int64_t* chosen = index.data<std::int64_t>();
  for (std::int64_t i = 0; i < index.numel(); ++i, to += width)
    std::memcpy(to, from + static_cast<std::size_t>(chosen[i]) * width, width);
}

void scatter_add_rows(const Tensor& x, const Tensor& index, Tensor& out) {
  visit_floating(x.dtype(), [&]<class T>() {
    using C = ComputeType<T>;
    const std::int64_t width = out.shape()[0] > 0 ? out.numel() / out.shape()[0] : 0;
    const T* from = x.data<T>();
    const std::int64_t* chosen = index.data<std::int64_t>();
    for (std::int64_t i = 0; i < index.numel(); ++i, from += width) {
      T* to = out.data<T>() + chosen[i] * width;
      for (std::int64_t j = 0; j < width; ++j) to[j] = T(static_cast<C>(to[j]) + static_cast<C>(from[j]));
    }
  });
}

}  // namespace

void add_indexing(kernels::Table& table) {
  table.gather = gather;
  table.scatter_add = scatter_add;
  table.scatter = scatter;
  table.gather_rows = gather_rows;
  table.scatter_add_rows = scatter_add_rows;
}

}  // namespace ddprun::cpu
