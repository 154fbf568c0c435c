#include "common/rounding.h"
#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/pooling.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

// Gradients are gathered: each input adds up the outputs that read it, in their order, so nothing is added atomically.
namespace ddprun::cuda {
namespace {

using kernels::PoolGeometry;

// [first, last)
struct Range {
  std::int64_t first, last;
};

// Relates the inputs and outputs along one direction of a plane.
struct SlidingWindows {
  std::int64_t size, out, kernel, stride, padding;

  __device__ Range inputs(std::int64_t output) const {
    const std::int64_t first = output * stride - padding;
    return {first < 0 ? 0 : first, first + kernel < size ? first + kernel : size};
  }
  // Returns the outputs whose windows have this input.
  __device__ Range outputs(std::int64_t input) const {
    const std::int64_t before = input + padding - kernel, last = (input + padding) / stride + 1;
    return {before < 0 ? 0 : before / stride + 1, last < out ? last : out};
  }
  // Returns the extent of a window; zeros of the padding count.
  __device__ std::int64_t extent(std::int64_t output) const {
    const std::int64_t first = output * stride - padding;
    return (first + kernel < size + padding ? first + kernel : size + padding) - first;
  }
};

struct AdaptiveWindows {
  std::int64_t size, out;

  __device__ Range inputs(std::int64_t output) const {
    return {output * size / out, divide_up((output + 1) * size, out)};
  }
  __device__ Range outputs(std::int64_t input) const {
    return {input * out / size, divide_up((input + 1) * out, size)};
  }
  __device__ std::int64_t extent(std::int64_t output) const {
    const Range range = inputs(output);
    return range.last - range.first;
  }
};

// An element's plane, row and column.
struct Place {
  std::int64_t plane, row, column;
};

// Planes one after the other.
class Extents {
 public:
  Extents(std::int64_t planes, std::int64_t height, std::int64_t width)
      : planes_(planes), height_(height), width_(width) {}

  std::int64_t count() const { return planes_ * height_.divisor() * width_.divisor(); }
  __device__ std::int64_t width() const { return width_.divisor(); }
  __device__ std::int64_t plane() const { return height_.divisor() * width_.divisor(); }
  __device__ Place place_of(std::int64_t element) const {
    const std::int64_t line = width_.quotient(element), plane = height_.quotient(line);
    return {plane, line - plane * height_.divisor(), element - line * width_.divisor()};
  }

 private:
  std::int64_t planes_;
  Divider height_, width_;
};

// Both directions of all planes.
template <class Windows>
struct Planes {
  Windows rows, columns;
  Extents inputs, outputs;
};

Planes<SlidingWindows> sliding(const PoolGeometry& g) {
  return {{g.height, g.out_h, g.kernel, g.stride, g.padding},
          {g.width, g.out_w, g.kernel, g.stride, g.padding},
          {g.planes, g.height, g.width},
          {g.planes, g.out_h, g.out_w}};
}

Planes<AdaptiveWindows> adaptive(const PoolGeometry& g) {
  return {{g.height, g.out_h}, {g.width, g.out_w}, {g.planes, g.height, g.width}, {g.planes, g.out_h, g.out_w}};
}

// The first maximum of each window. A NaN counts as larger than everything.
template <class E>
__global__ void max_forward(Planes<SlidingWindows> planes, std::int64_t count, const E* __restrict__ x,
                            E* __restrict__ y, std::int32_t* __restrict__ index) {
  using T = ComputeType<E>;
  const std::int64_t width = planes.inputs.width();
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const Place at = planes.outputs.place_of(i);
    const Range rows = planes.rows.inputs(at.row), columns = planes.columns.inputs(at.column);
    const E* plane = x + at.plane * planes.inputs.plane();
    std::int64_t best = rows.first * width + columns.first;
    T largest = static_cast<T>(plane[best]);
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      for (std::int64_t column = columns.first; column < columns.last; ++column) {
        const T value = static_cast<T>(plane[row * width + column]);
        if (!(value > largest) && value == value) continue;
        largest = value;
        best = row * width + column;
      }
    }
    y[i] = static_cast<E>(largest);
    index[i] = static_cast<std::int32_t>(best);
  }
}

template <class E>
__global__ void max_backward(Planes<SlidingWindows> planes, std::int64_t count, const E* __restrict__ grad,
                             const std::int32_t* __restrict__ index, E* __restrict__ x_grad) {
  using T = ComputeType<E>;
  const std::int64_t width = planes.outputs.width();
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const Place at = planes.inputs.place_of(i);
    const Range rows = planes.rows.outputs(at.row), columns = planes.columns.outputs(at.column);
    const std::int64_t plane = at.plane * planes.outputs.plane(), self = at.row * planes.inputs.width() + at.column;
    T total = 0;
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      for (std::int64_t column = columns.first; column < columns.last; ++column) {
        const std::int64_t output = plane + row * width + column;
        if (index[output] == self) total += static_cast<T>(grad[output]);
      }
    }
    x_grad[i] = static_cast<E>(total);
  }
}

template <class E, class Windows>
__global__ void average_forward(Planes<Windows> planes, std::int64_t count, const E* __restrict__ x,
                                E* __restrict__ y) {
  using T = ComputeType<E>;
  const std::int64_t width = planes.inputs.width();
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const Place at = planes.outputs.place_of(i);
    const Range rows = planes.rows.inputs(at.row), columns = planes.columns.inputs(at.column);
    const E* plane = x + at.plane * planes.inputs.plane();
    T total = 0;
    for (std::int64_t row = rows.first; row < rows.last; ++row)
      for (std::int64_t column = columns.first; column < columns.last; ++column)
        total += static_cast<T>(plane[row * width + column]);
    y[i] = static_cast<E>(total / static_cast<T>(planes.rows.extent(at.row) * planes.columns.extent(at.column)));
  }
}

template <class E, class Windows>
__global__ void average_backward(Planes<Windows> planes, std::int64_t count, const E* __restrict__ grad,
                                 E* __restrict__ x_grad) {
  using T = ComputeType<E>;
  const std::int64_t width = planes.outputs.width();
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const Place at = planes.inputs.place_of(i);
    const Range rows = planes.rows.outputs(at.row), columns = planes.columns.outputs(at.column);
    const E* plane = grad + at.plane * planes.outputs.plane();
    T total = 0;
    for (std::int64_t row = rows.first; row < rows.last; ++row)
      for (std::int64_t column = columns.first; column < columns.last; ++column)
        total += static_cast<T>(plane[row * width + column]) /
                 static_cast<T>(planes.rows.extent(row) * planes.columns.extent(column));
    x_grad[i] = static_cast<E>(total);
  }
}

// Launches a kernel with a thread for each element of the extents.
template <class Kernel, class Windows, class... Pointers>
void launch_over(DeviceContext& device, Kernel kernel, const Extents& extents, const Planes<Windows>& planes,
                 Pointers... pointers) {
  const std::int64_t count = extents.count();
  launch(device, kernel, grid_of_threads(device, count), block_threads, 0, planes, count, pointers...);
}

template <class Windows>
void average(DeviceContext& device, const char* operation, const Planes<Windows>& planes, const View& x,
             const View& out) {
  visit_floating(device, operation, x.dtype, [&]<class E>() {
    launch_over(device, average_forward<E, Windows>, planes.outputs, planes, elements<E>(x), writable<E>(out));
  });
}

template <class Windows>
void average_gradient(DeviceContext& device, const char* operation, const Planes<Windows>& planes, const View& grad,
                      const View& out) {
  visit_floating(device, operation, grad.dtype, [&]<class E>() {
    launch_over(device, average_backward<E, Windows>, planes.inputs, planes, elements<E>(grad), writable<E>(out));
  });
}

}  // namespace

void max_pool2d(DeviceContext& device, const PoolGeometry& geometry, const View& x, const View& out,
                const View& index) {
  const Planes<SlidingWindows> planes = sliding(geometry);
  visit_floating(device, "max_pool2d", x.dtype, [&]<class E>() {
    launch_over(device, max_forward<E>, planes.outputs, planes, elements<E>(x), writable<E>(out),
                writable<std::int32_t>(index));
  });
}

void max_pool2d_backward(DeviceContext& device, const PoolGeometry& geometry, const View& grad, const View& index,
                         const View& out) {
  const Planes<SlidingWindows> planes = sliding(geometry);
  visit_floating(device, "max_pool2d_backward", grad.dtype, [&]<class E>() {
    launch_over(device, max_backward<E>, planes.inputs, planes, elements<E>(grad), elements<std::int32_t>(index),
                writable<E>(out));
  });
}

void avg_pool2d(DeviceContext& device, const PoolGeometry& geometry, const View& x, const View& out) {
  average(device, "avg_pool2d", sliding(geometry), x, out);
}

void avg_pool2d_backward(DeviceContext& device, const PoolGeometry& geometry, const View& grad, const View& out) {
  average_gradient(device, "avg_pool2d_backward", sliding(geometry), grad, out);
}

void adaptive_avg_pool2d(DeviceContext& device, const PoolGeometry& geometry, const View& x, const View& out) {
  average(device, "adaptive_avg_pool2d", adaptive(geometry), x, out);
}

void adaptive_avg_pool2d_backward(DeviceContext& device, const PoolGeometry& geometry, const View& grad,
                                  const View& out) {
  average_gradient(device, "adaptive_avg_pool2d_backward", adaptive(geometry), grad, out);
}

}  // namespace ddprun::cuda
