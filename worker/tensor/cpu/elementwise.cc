#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "worker/tensor/cpu/strided.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"
#include "worker/tensor/random.h"

// The loops that drive functors/. A functor has a loop for float32, made for several instruction sets, and one for
// float64. 16-bit elements pass through float32 in blocks that stay in the cache, so they need no loops of their own;
// transcendental functions of them are looked up.
namespace ddprun::cpu {
namespace {

using functor::Arguments;
using functor::Binary;
using functor::Comparison;
using functor::make;
using functor::Unary;

// The operands of a row: the distances of their elements, 1 and 0 being the cases that vectorize.
struct Steps {
  std::int64_t a, b, out;
};

template <class F, class T>
[[gnu::always_inline]] inline void unary_loop(const Arguments& arguments, std::int64_t count, const T* x, T* y) {
  const F f = make<F>(arguments);
  for (std::int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
}

template <class F, class T>
[[gnu::always_inline]] inline void unary_gradient_loop(const Arguments& arguments, std::int64_t count, const T* saved,
                                                       const T* grad, T* out) {
  const F f = make<F>(arguments);
  for (std::int64_t i = 0; i < count; ++i) out[i] = f.gradient(saved[i], grad[i]);
}

// out[i] = f(a[i], b[i]), with the loop made anew for the steps that matter.
template <class A, class B, class Out, class Function>
[[gnu::always_inline]] inline void for_each_pair(const Steps& steps, std::int64_t count, const A* a, const B* b,
                                                 Out* out, Function f) {
  if (steps.out == 1 && steps.a == 1 && steps.b == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = f(a[i], b[i]);
  } else if (steps.out == 1 && steps.a == 1 && steps.b == 0) {
    const B one = *b;
    for (std::int64_t i = 0; i < count; ++i) out[i] = f(a[i], one);
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i * steps.out] = f(a[i * steps.a], b[i * steps.b]);
  }
}

template <class F, class T>
[[gnu::always_inline]] inline void binary_loop(const Arguments& arguments, const Steps& steps, std::int64_t count,
                                               const T* a, const T* b, T* out) {
  const F f = make<F>(arguments);
  for_each_pair(
      steps, count, a, b, out, [f](T x, T y) __attribute__((always_inline)) { return f(x, y); });
}

template <class F, class T>
[[gnu::always_inline]] inline void binary_gradient_loop(const Arguments& arguments, int operand, const Steps& steps,
                                                        std::int64_t count, const T* a, const T* b, const T* grad,
                                                        T* out) {
  const F f = make<F>(arguments);
  if (operand == 0) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = f.gradient_a(a[i * steps.a], b[i * steps.b], grad[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = f.gradient_b(a[i * steps.a], b[i * steps.b], grad[i]);
  }
}

// The loops of one functor and one type.
template <class T>
struct UnaryRows {
  void (*value)(const Arguments&, std::int64_t, const T*, T*);
  void (*gradient)(const Arguments&, std::int64_t, const T*, const T*, T*);
};
template <class T>
struct BinaryRows {
  void (*value)(const Arguments&, const Steps&, std::int64_t, const T*, const T*, T*);
  void (*gradient)(const Arguments&, int, const Steps&, std::int64_t, const T*, const T*, const T*, T*);
};

template <class F>
DDPRUN_VECTORIZED void unary_float(const Arguments& arguments, std::int64_t count, const float* x, float* y) {
  unary_loop<F>(arguments, count, x, y);
}
template <class F>
DDPRUN_VECTORIZED void unary_gradient_float(const Arguments& arguments, std::int64_t count, const float* saved,
                                            const float* grad, float* out) {
  unary_gradient_loop<F>(arguments, count, saved, grad, out);
}
template <class F>
DDPRUN_VECTORIZED void binary_float(const Arguments& arguments, const Steps& steps, std::int64_t count, const float* a,
                                    const float* b, float* out) {
  binary_loop<F>(arguments, steps, count, a, b, out);
}
template <class F>
DDPRUN_VECTORIZED void binary_gradient_float(const Arguments& arguments, int operand, const Steps& steps,
                                             std::int64_t count, const float* a, const float* b, const float* grad,
                                             float* out) {
  binary_gradient_loop<F>(arguments, operand, steps, count, a, b, grad, out);
}

template <class F>
void unary_double(const Arguments& arguments, std::int64_t count, const double* x, double* y) {
  unary_loop<F>(arguments, count, x, y);
}
template <class F>
void unary_gradient_double(const Arguments& arguments, std::int64_t count, const double* saved, const double* grad,
                           double* out) {
  unary_gradient_loop<F>(arguments, count, saved, grad, out);
}
template <class F>
void binary_double(const Arguments& arguments, const Steps& steps, std::int64_t count, const double* a, const double* b,
                   double* out) {
  binary_loop<F>(arguments, steps, count, a, b, out);
}
template <class F>
void binary_gradient_double(const Arguments& arguments, int operand, const Steps& steps, std::int64_t count,
                            const double* a, const double* b, const double* grad, double* out) {
  binary_gradient_loop<F>(arguments, operand, steps, count, a, b, grad, out);
}

// --- from a function's number to its loops

#define DDPRUN_ROW(name, functor_) {unary_float<functor::functor_>, unary_gradient_float<functor::functor_>},
constexpr UnaryRows<float> unary_rows_float[] = {DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW
#define DDPRUN_ROW(name, functor_) {unary_double<functor::functor_>, unary_gradient_double<functor::functor_>},
constexpr UnaryRows<double> unary_rows_double[] = {DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW
#define DDPRUN_ROW(name, functor_) {binary_float<functor::functor_>, binary_gradient_float<functor::functor_>},
constexpr BinaryRows<float> binary_rows_float[] = {DDPRUN_BINARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW
#define DDPRUN_ROW(name, functor_) {binary_double<functor::functor_>, binary_gradient_double<functor::functor_>},
constexpr BinaryRows<double> binary_rows_double[] = {DDPRUN_BINARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW

template <class T, class Function>
const auto& rows_of(Function function) {
  const auto at = static_cast<std::size_t>(function);
  if constexpr (std::is_same_v<Function, Unary>) {
    if constexpr (std::is_same_v<T, double>)
      return unary_rows_double[at];
    else
      return unary_rows_float[at];
  } else {
    if constexpr (std::is_same_v<T, double>)
      return binary_rows_double[at];
    else
      return binary_rows_float[at];
  }
}

// --- blocks of 16-bit elements as float32

constexpr std::int64_t block = 1024;
using Block = std::array<float, block>;

template <class T>
DDPRUN_VECTORIZED void load_block(std::int64_t count, const T* from, std::int64_t step, float* to) {
  if (step == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i * step]);
  }
}

template <class T>
DDPRUN_VECTORIZED void store_block(std::int64_t count, const float* from, T* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = T(from[i]);
}

// Calls visit(start, size) for successive blocks.
template <class Visit>
void for_each_block(std::int64_t count, Visit visit) {
  for (std::int64_t start = 0; start < count; start += block) visit(start, std::min(block, count - start));
}

template <class T>
void computed_row(Unary function, const Arguments& arguments, std::int64_t count, const T* x, T* y) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    rows_of<T>(function).value(arguments, count, x, y);
  } else {
    Block in, out;
    for_each_block(count, [&](std::int64_t start, std::int64_t size) {
      load_block(size, x + start, 1, in.data());
      rows_of<float>(function).value(arguments, size, in.data(), out.data());
      store_block(size, out.data(), y + start);
    });
  }
}

template <class T>
void computed_gradient_row(Unary function, const Arguments& arguments, std::int64_t count, const T* saved,
                           const T* grad, T* out) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    rows_of<T>(function).gradient(arguments, count, saved, grad, out);
  } else {
    Block in, in_grad, result;
    for_each_block(count, [&](std::int64_t start, std::int64_t size) {
      load_block(size, saved + start, 1, in.data());
      load_block(size, grad + start, 1, in_grad.data());
      rows_of<float>(function).gradient(arguments, size, in.data(), in_grad.data(), result.data());
      store_block(size, result.data(), out + start);
    });
  }
}

// --- tables of transcendental functions of 16-bit elements

struct Tabulated {
  bool value, gradient;
};
#define DDPRUN_ROW(name, functor_) \
  {functor::has_transcendental_value<functor::functor_>, functor::has_transcendental_gradient<functor::functor_>},
constexpr Tabulated tabulated[] = {DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW

// Tables by the bits of the element: the function's value, and its derivative where it saves that element. Looking up
// takes half the time of computing: the GELU of bfloat16 0.30 ns an element instead of 0.65, its gradient 0.35 instead
// of 0.83 (Zen 4). Values of neighbouring magnitude are neighbours, so what a layer needs stays in the nearest cache.
template <class T>
struct UnaryTable {
  static constexpr std::size_t entries = 65536;

  explicit UnaryTable(Unary function) : value(entries), derivative(entries) {
    std::vector<T> all(entries);
    for (std::size_t bits = 0; bits < entries; ++bits) all[bits].bits = static_cast<std::uint16_t>(bits);
    computed_row(function, {}, entries, all.data(), value.data());
    std::vector<float> wide(entries);
    load_block(entries, all.data(), 1, wide.data());
    const std::vector<float> ones(entries, 1.0F);
    rows_of<float>(function).gradient({}, entries, wide.data(), ones.data(), derivative.data());
  }

  std::vector<T> value;
  std::vector<float> derivative;
};

// The table is made when the function is first called.
template <class T>
const UnaryTable<T>& table_of(Unary function) {
  static std::array<std::once_flag, std::size(tabulated)> made;
  static std::array<std::unique_ptr<const UnaryTable<T>>, std::size(tabulated)> tables;
  const auto at = static_cast<std::size_t>(function);
  std::call_once(made[at], [&] { tables[at] = std::make_unique<const UnaryTable<T>>(function); });
  return *tables[at];
}

template <class T>
DDPRUN_VECTORIZED void look_up_values(const T* table, std::int64_t count, const T* x, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = table[x[i].bits];
}
template <class T>
DDPRUN_VECTORIZED void look_up_gradients(const float* derivative, std::int64_t count, const T* saved, const T* grad,
                                         T* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = T(derivative[saved[i].bits] * static_cast<float>(grad[i]));
}

template <class T>
constexpr bool has_16_bits = !std::is_same_v<T, ComputeType<T>>;

template <class T>
void unary_row(Unary function, const Arguments& arguments, std::int64_t count, const T* x, T* y) {
  if constexpr (has_16_bits<T>) {
    if (tabulated[static_cast<std::size_t>(function)].value)
      return look_up_values(table_of<T>(function).value.data(), count, x, y);
  }
  computed_row(function, arguments, count, x, y);
}

template <class T>
void unary_gradient_row(Unary function, const Arguments& arguments, std::int64_t count, const T* saved, const T* grad,
                        T* out) {
  if constexpr (has_16_bits<T>) {
    if (tabulated[static_cast<std::size_t>(function)].gradient)
      return look_up_gradients(table_of<T>(function).derivative.data(), count, saved, grad, out);
  }
  computed_gradient_row(function, arguments, count, saved, grad, out);
}

// --- binary functions

// out: contiguous
template <class T>
void binary_row(Binary function, const Arguments& arguments, const Steps& steps, std::int64_t count, const T* a,
                const T* b, T* out) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    rows_of<T>(function).value(arguments, steps, count, a, b, out);
  } else {
    Block in_a, in_b, result;
    for_each_block(count, [&](std::int64_t start, std::int64_t size) {
      load_block(size, a + start * steps.a, steps.a, in_a.data());
      load_block(size, b + start * steps.b, steps.b, in_b.data());
      rows_of<float>(function).value(arguments, {1, 1, 1}, size, in_a.data(), in_b.data(), result.data());
      store_block(size, result.data(), out + start);
    });
  }
}

template <class T>
void binary_gradient_row(Binary function, const Arguments& arguments, int operand, const Steps& steps,
                         std::int64_t count, const T* a, const T* b, const T* grad, T* out) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    rows_of<T>(function).gradient(arguments, operand, steps, count, a, b, grad, out);
  } else {
    Block in_a, in_b, in_grad, result;
    for_each_block(count, [&](std::int64_t start, std::int64_t size) {
      load_block(size, a + start * steps.a, steps.a, in_a.data());
      load_block(size, b + start * steps.b, steps.b, in_b.data());
      load_block(size, grad + start, 1, in_grad.data());
      rows_of<float>(function).gradient(arguments, operand, {1, 1, 1}, size, in_a.data(), in_b.data(), in_grad.data(),
                                        result.data());
      store_block(size, result.data(), out + start);
    });
  }
}

// --- the table's entries

void unary(Unary function, const Arguments& arguments, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(),
                 [&]<class T>() { unary_row(function, arguments, x.numel(), x.elements<T>(), y.elements<T>()); });
}

void unary_gradient(Unary function, const Arguments& arguments, const Tensor& saved, const Tensor& grad, Tensor& out) {
  visit_floating(grad.dtype(), [&]<class T>() {
    // A function that saves nothing does not look at what is passed in its place.
    const T* from = saved.defined() ? saved.elements<T>() : grad.elements<T>();
    unary_gradient_row(function, arguments, grad.numel(), from, grad.elements<T>(), out.elements<T>());
  });
}

template <class T>
const T* first(const Tensor& tensor) {
  return static_cast<const T*>(tensor.raw());
}

void binary(Binary function, const Arguments& arguments, const Tensor& a, const Tensor& b, Tensor& out) {
  if (out.channel_block() != 0) {
    return visit_floating(out.dtype(), [&]<class T>() {
      binary_row(function, arguments, {1, 1, 1}, out.numel(), a.elements<T>(), b.elements<T>(), out.elements<T>());
    });
  }
  const StridedLoop<3> loop(out.shape(), {&a.strides(), &b.strides(), &out.strides()});
  visit_floating(out.dtype(), [&]<class T>() {
    loop.for_each_row([&](const auto& at, std::int64_t count, const auto& by) {
      binary_row(function, arguments, {by[0], by[1], 1}, count, first<T>(a) + at[0], first<T>(b) + at[1],
                 out.data<T>() + at[2]);
    });
  });
}

void binary_gradient(Binary function, const Arguments& arguments, int operand, const Tensor& a, const Tensor& b,
                     const Tensor& grad, Tensor& out) {
  const StridedLoop<3> loop(out.shape(), {&a.strides(), &b.strides(), &out.strides()});
  visit_floating(out.dtype(), [&]<class T>() {
    loop.for_each_row([&](const auto& at, std::int64_t count, const auto& by) {
      binary_gradient_row(function, arguments, operand, {by[0], by[1], 1}, count, first<T>(a) + at[0],
                          first<T>(b) + at[1], grad.data<T>() + at[2], out.data<T>() + at[2]);
    });
  });
}

// --- comparison and selection, of any element type

template <class T>
ComputeType<T> computed(T value) {
  return static_cast<ComputeType<T>>(value);
}

template <class T, class Compare>
void compare_as(const Tensor& a, const Tensor& b, Tensor& out, Compare compare) {
  const StridedLoop<3> loop(out.shape(), {&a.strides(), &b.strides(), &out.strides()});
  loop.for_each_row([&](const auto& at, std::int64_t count, const auto& by) {
    for_each_pair({by[0], by[1], by[2]}, count, first<T>(a) + at[0], first<T>(b) + at[1],
                  out.data<std::uint8_t>() + at[2],
                  [compare](T x, T y) { return std::uint8_t{compare(computed(x), computed(y))}; });
  });
}

void compare(Comparison comparison, const Tensor& a, const Tensor& b, Tensor& out) {
  visit_any(a.dtype(), [&]<class T>() {
    switch (comparison) {
#define DDPRUN_CASE(name, operation) \
  case Comparison::name:             \
    return compare_as<T>(a, b, out, [](auto x, auto y) { return x operation y; });
      DDPRUN_COMPARISONS(DDPRUN_CASE)
#undef DDPRUN_CASE
    }
  });
}

void where(const Tensor& cond, const Tensor& a, const Tensor& b, Tensor& out) {
  const StridedLoop<4> loop(out.shape(), {&cond.strides(), &a.strides(), &b.strides(), &out.strides()});
  visit_any(out.dtype(), [&]<class T>() {
    loop.for_each_row([&](const auto& at, std::int64_t count, const auto& by) {
      const std::uint8_t* chosen = first<std::uint8_t>(cond) + at[0];
      const T *x = first<T>(a) + at[1], *y = first<T>(b) + at[2];
      T* to = out.data<T>() + at[3];
      for (std::int64_t i = 0; i < count; ++i) to[i * by[3]] = chosen[i * by[0]] != 0 ? x[i * by[1]] : y[i * by[2]];
    });
  });
}

template <class T>
void dropout_row(double probability, Generator generator, std::int64_t count, const T* x, T* out) {
  using C = ComputeType<T>;
  const C kept = probability < 1 ? static_cast<C>(1 / (1 - probability)) : C(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool drop = static_cast<double>(generator.uniform_float()) < probability;
    out[i] = drop ? T(C(0)) : T(computed(x[i]) * kept);
  }
}

void dropout(const Tensor& x, double probability, std::uint64_t seed, const std::vector<std::uint64_t>& streams,
             std::uint64_t first, Tensor& out) {
  const auto rows = static_cast<std::int64_t>(streams.size());
  const std::int64_t count = rows > 0 ? x.numel() / rows : 0;
  visit_floating(x.dtype(), [&]<class T>() {
    for (std::int64_t row = 0; row < rows; ++row)
      dropout_row(probability, Generator({seed, streams[static_cast<std::size_t>(row)], first}), count,
                  x.data<T>() + row * count, out.data<T>() + row * count);
  });
}

}  // namespace

void add_elementwise(kernels::Table& table) {
  table.unary = unary;
  table.unary_gradient = unary_gradient;
  table.binary = binary;
  table.binary_gradient = binary_gradient;
  table.compare = compare;
  table.where = where;
  table.dropout = dropout;
}

}  // namespace ddprun::cpu
