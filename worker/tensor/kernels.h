#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "worker/tensor/functors/binary.h"
#include "worker/tensor/functors/unary.h"
#include "worker/tensor/geometry.h"
#include "worker/tensor/random.h"
#include "worker/tensor/tensor.h"

// Operations on tensors without gradients: one table of functions per type of device. autograd/ops is the user's side:
// it checks shapes, dtypes and devices, and knows the gradients. Here they are REQUIRED to fit, and inputs are
// contiguous unless a comment says "strided", or "dense": row-major or blocked by channels, all operands alike. Results
// are new tensors unless they are arguments; "accumulate" adds to them instead of overwriting.
//
// Types: float32, float64, and bfloat16 and float16, which are stored in 16 bits and computed in float32.
// Sums are taken in an order that depends only on shapes, so the same input gives the same bits.
namespace ddprun::kernels {

// --- results of several tensors

struct NormStatistics {
  Tensor mean;     // (channels), or one per row
  Tensor inverse;  // (channels), or one per row: 1 / sqrt(variance + eps)
};
struct NormGradients {
  Tensor x, weight, bias;  // weight and bias undefined where there are none
};

// The gradients of rows, written where the caller wants them.
struct RowNormGradients {
  Tensor x;                       // made here
  Tensor x_copy = {};             // the same in 16 bits, where x is float32, or undefined
  Tensor weight = {}, bias = {};  // undefined where they are not wanted
  bool accumulate_weight = false, accumulate_bias = false;
};

// Operations that a product out = op(a) op(b) computes as well. Those of undefined tensors are left out.
struct MatmulFusion {
  Tensor bias = {};           // (n), of out's type: added to each row
  Tensor addend = {};         // like out, and not out: added
  Tensor gelu_input = {};     // like out: gets the product with its bias, and out the GELU (by tanh) of that
  Tensor gelu_gradient = {};  // like out: the product is multiplied by the GELU's derivative at these values
  Tensor sums = {};           // gets the sums of the columns of b as it is stored, or of a; float32 or of its type
  bool sums_of_a = false;
  bool accumulate_sums = false;
};

// A mean loss, and the tensors from which its gradients are made.
struct LinearLoss {
  Tensor loss;           // a scalar
  Tensor share;          // a scalar, float32 or float64: 1 / rows that count
  Tensor input, weight;  // the gradients divided by share, float32 or float64; undefined where none were wanted
};

struct AttentionResult {
  Tensor out;
  Tensor log_sum;  // (batch, heads, queries): that of the sum of the scores' exponentials, float32 or float64
};
// The sums that attention_backward() needs of the forward pass, and of all keys where it sees some of them.
struct AttentionSums {
  Tensor log_sum;
  // The result times its gradient, summed over the width: like log_sum. It is undefined if these are all keys.
  Tensor grad_dot_out = {};
};
struct AttentionGradients {
  Tensor query, key, value;
  bool accumulate = false;  // true if they are added to what is there
};

// --- the table

[[noreturn]] void throw_missing(const char* operation, DType dtype, Device device);

// One operation of a device. Calling an entry that the device does not have is Errc::unsupported, naming the operation,
// the dtype and the device of its first tensor.
template <class Signature>
class Entry;
template <class Result, class... Parameters>
class Entry<Result(Parameters...)> {
 public:
  constexpr explicit Entry(const char* name) : name_(name) {}
  constexpr Entry& operator=(Result (*function)(Parameters...)) {
    function_ = function;
    return *this;
  }

  Result operator()(Parameters... arguments) const {
    if (function_ == nullptr) refuse(arguments...);
    return function_(std::forward<Parameters>(arguments)...);
  }

 private:
  template <class... Arguments>
  [[noreturn]] void refuse(const Arguments&... arguments) const {
    const Tensor* first = nullptr;
    const auto consider = [&](const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, Tensor>)
        if (first == nullptr) first = &argument;
      if constexpr (std::is_same_v<Argument, std::span<const Tensor>>)
        if (first == nullptr && !argument.empty()) first = argument.data();
    };
    (consider(arguments), ...);
    throw_missing(name_, first ? first->dtype() : DType::float32, first ? first->device() : Device{});
  }

  const char* name_;
  Result (*function_)(Parameters...) = nullptr;
};

using functor::Arguments;
using functor::Binary;
using functor::Comparison;
using functor::Unary;
using In = const Tensor&;
using Tensors = std::span<const Tensor>;  // handles: the elements may change

struct Table {
#define DDPRUN_ENTRY(name, ...) \
  Entry<__VA_ARGS__> name {     \
#name                       \
  }
  // Elementwise functions, driven by functors/; their operands are dense.
  DDPRUN_ENTRY(unary, void(Unary, const Arguments&, In x, Tensor& y));
  DDPRUN_ENTRY(unary_gradient, void(Unary, const Arguments&, In saved, In grad, Tensor& out));
  // a, b and cond are strided, of out's shape; grad and out are contiguous. binary: or all are blocked alike.
  DDPRUN_ENTRY(binary, void(Binary, const Arguments&, In a, In b, Tensor& out));
  DDPRUN_ENTRY(binary_gradient, void(Binary, const Arguments&, int operand, In a, In b, In grad, Tensor& out));
  DDPRUN_ENTRY(compare, void(Comparison, In a, In b, Tensor& out));  // out: uint8, 0 or 1
  DDPRUN_ENTRY(where, void(In cond, In a, In b, Tensor& out));       // cond: uint8
  DDPRUN_ENTRY(copy, void(In from,
                          Tensor& to));  // any two dtypes; both strided, of equal numbers of elements; any two devices
  // to[i] = from[i] for dense tensors of one device: each float32, and its copy of one 16-bit type.
  DDPRUN_ENTRY(cast_all, void(const std::vector<Tensor>& from, const std::vector<Tensor>& to));
  DDPRUN_ENTRY(fill, void(Tensor& to, double value));
  // Row i of x is dropped with the probability by random numbers of streams[i], from number first on; the rest is
  // scaled by 1 / (1 - probability). x and out may be one.
  DDPRUN_ENTRY(dropout, void(In x, double probability, std::uint64_t seed, const std::vector<std::uint64_t>& streams,
                             std::uint64_t first, Tensor& out));

  // Reductions along an axis: out is (outer, inner).
  DDPRUN_ENTRY(sum, void(In x, const Axis&, Tensor& out));
  DDPRUN_ENTRY(max, void(In x, const Axis&, Tensor& out, Tensor& index));    // index: int64, of the first maximum
  DDPRUN_ENTRY(softmax, void(In x, const Axis& rows, bool log, Tensor& y));  // inner is 1
  DDPRUN_ENTRY(softmax_gradient, void(In y, In grad, const Axis& rows, bool log, Tensor& out));  // inner is 1

  // Indexing; indices are int64 within range.
  DDPRUN_ENTRY(gather, void(In x, const Axis&, In index, Tensor& out));  // out[o, j, i] = x[o, index[o, j, i], i]
  DDPRUN_ENTRY(scatter_add, void(In x, const Axis& of_out, In index, Tensor& out));  // out[o, index[o, j, i], i] += x
  DDPRUN_ENTRY(scatter, void(In x, const Axis& of_out, In index, Tensor& out));      // the same with = in place of +=
  DDPRUN_ENTRY(gather_rows, void(In table, In index, Tensor& out));
  DDPRUN_ENTRY(scatter_add_rows, void(In x, In index, Tensor& out));

  // x (outer, channels, inner) += bias (channels)
  DDPRUN_ENTRY(add_bias, void(Tensor& x, In bias, std::int64_t outer, std::int64_t inner));
  // out (channels) = the sum of grad (outer, channels, inner) over outer and inner
  DDPRUN_ENTRY(sum_to_bias, void(In grad, std::int64_t outer, std::int64_t inner, Tensor& out, bool accumulate));

  // out (m, n) = op(a) (m, k) op(b) (k, n); op may transpose. A leading dimension numbers the products.
  DDPRUN_ENTRY(matmul, void(In a, In b, Tensor& out, MatmulOptions));
  // Does the same, and adds bias (n) to each row.
  DDPRUN_ENTRY(addmm, void(In bias, In a, In b, Tensor& out, MatmulOptions));
  DDPRUN_ENTRY(batched_matmul, void(In a, In b, Tensor& out, MatmulOptions));
  // One product with more in its kernel where the device has that. An addend or a GELU excludes options.accumulate.
  DDPRUN_ENTRY(fused_matmul, void(In a, In b, Tensor& out, const MatmulFusion&, MatmulOptions));

  // The range of a float32 tensor; from 0 to 0 for a tensor without elements.
  DDPRUN_ENTRY(value_range, ValueRange(In x));
  // out (m, n) = x (m, k) times weight (n, k) transposed, times scale (n), plus bias (n) or undefined. weight is int8,
  // weight_sum int32 the sums of its rows, the others float32. x is rounded to the levels, and clamped to them.
  DDPRUN_ENTRY(quantized_linear, void(In x, const Levels&, In weight, In weight_sum, In scale, In bias, Tensor& out));
  // Does the same with (out, in / groups, kh, kw) as weight; the others are by output channel; images are row-major.
  DDPRUN_ENTRY(quantized_conv2d,
               Tensor(const ConvGeometry&, In x, const Levels&, In weight, In weight_sum, In scale, In bias));

  // weight (out, in / groups, kh, kw); bias (out) or undefined. Images are dense, the result has the layout that suits
  // the device.
  DDPRUN_ENTRY(conv2d, Tensor(const ConvGeometry&, In x, In weight, In bias));
  DDPRUN_ENTRY(conv2d_backward_input, Tensor(const ConvGeometry&, In grad, In weight));
  DDPRUN_ENTRY(conv2d_backward_weight, void(const ConvGeometry&, In x, In grad, Tensor& weight_grad, bool accumulate));

  // index, int32 and like the result: the place of the (first) maximum in its plane of x.
  DDPRUN_ENTRY(max_pool2d, Tensor(const PoolGeometry&, In x, const Shape& out_shape, Tensor& index));
  DDPRUN_ENTRY(max_pool2d_backward, Tensor(const PoolGeometry&, In grad, In index, const Shape& in_shape));
  DDPRUN_ENTRY(avg_pool2d, Tensor(const PoolGeometry&, In x, const Shape& out_shape));
  DDPRUN_ENTRY(avg_pool2d_backward, Tensor(const PoolGeometry&, In grad, const Shape& in_shape));
  // Output (i, j) is the mean over rows [i height / out_h, ceil((i + 1) height / out_h)), columns likewise.
  DDPRUN_ENTRY(adaptive_avg_pool2d, Tensor(const PoolGeometry&, In x, const Shape& out_shape));
  DDPRUN_ENTRY(adaptive_avg_pool2d_backward, Tensor(const PoolGeometry&, In grad, const Shape& in_shape));

  // Batch normalization of x (outer, channels, inner), dense; variance: the biased one.
  DDPRUN_ENTRY(batch_statistics,
               NormStatistics(In x, std::int64_t outer, std::int64_t inner, double eps, Tensor& variance));
  DDPRUN_ENTRY(inverse_deviation, Tensor(In variance, double eps));  // 1 / sqrt(variance + eps), element by element
  // y = (x - mean) * inverse * weight + bias
  DDPRUN_ENTRY(batch_norm,
               Tensor(In x, std::int64_t outer, std::int64_t inner, const NormStatistics&, In weight, In bias));
  // training: true if the statistics are of this very x and carry gradient too.
  DDPRUN_ENTRY(batch_norm_backward, NormGradients(In x, In grad, std::int64_t outer, std::int64_t inner,
                                                  const NormStatistics&, In weight, bool training));
  // Normalization of x (groups, channels, inner) over channels and inner together, then y = x weight + bias by channel
  // (either may be undefined; they have groups_per_sample * channels elements). inner is 1 for layer norm. centred:
  // false leaves the mean out, which is RMS norm. result: the type of y, that of x or 16 bits where x is float32.
  DDPRUN_ENTRY(group_norm, Tensor(In x, const Axis& groups, bool centred, double eps, In weight, In bias, DType result,
                                  NormStatistics&));
  DDPRUN_ENTRY(group_norm_backward, NormGradients(In x, In grad, const Axis& groups, bool centred,
                                                  const NormStatistics&, In weight, bool has_bias));
  // Does the same for rows whose channels all have their own weight, where inner is 1, with an addend, like x or
  // undefined, to which the gradient of x is added. grad: has the type of y.
  DDPRUN_ENTRY(row_norm_backward, void(In x, In grad, In addend, const Axis& rows, bool centred, const NormStatistics&,
                                       In weight, RowNormGradients& out));

  // scores (rows, classes), targets (rows) int64. The loss is the mean over the rows that count.
  DDPRUN_ENTRY(nll_loss, Tensor(In log_probabilities, In targets, const CrossEntropyOptions&));
  DDPRUN_ENTRY(nll_loss_backward, Tensor(In log_probabilities, In targets, const CrossEntropyOptions&, double factor));
  // factor * d loss / d scores, given log-probabilities
  DDPRUN_ENTRY(cross_entropy_backward,
               Tensor(In log_probabilities, In targets, const CrossEntropyOptions&, double factor));
  // The loss of scores = input (rows, width) weight (classes, width) transposed, which exist for some rows at a time.
  // loss: its type.
  DDPRUN_ENTRY(linear_cross_entropy,
               LinearLoss(In input, In weight, In targets, const LinearLossOptions&, DType loss, bool gradients));
  // out = x a b, or that is added to out. a and b are scalars of x's type; x is float32 or float64, out may have 16
  // bits.
  DDPRUN_ENTRY(scale_by, void(In x, In a, In b, Tensor& out, bool accumulate));

  // Scaled-dot-product attention: query (batch, heads, queries, width), key and value (batch, heads, keys, width), and
  // result and gradients of the same shapes, all strided but for the last dimension; mask undefined, or (queries,
  // keys), contiguous, added to the scores.
  DDPRUN_ENTRY(attention,
               void(In query, In key, In value, In mask, const AttentionOptions&, const AttentionResult& out));
  DDPRUN_ENTRY(attention_backward, void(In query, In key, In value, In mask, const AttentionSums&, In grad,
                                        const AttentionOptions&, const AttentionGradients& out));
  // Merges the result of some keys and that of others into that of all of them. They are float32 or float64.
  DDPRUN_ENTRY(merge_attention, void(const AttentionResult& part, const AttentionResult& all));

  // Optimizers: one pass over many tensors of one device, in place. The k-th of each list belong together; an empty
  // list means that there is no such state.
  DDPRUN_ENTRY(sgd_step, void(Tensors values, Tensors grads, Tensors momenta, const SgdStep&));
  DDPRUN_ENTRY(adam_step,
               void(Tensors values, Tensors grads, Tensors averages, Tensors square_averages, const AdamStep&));
  // Gradients on a device where the host would have to wait for a result: it stays there. sum: one float64. unscale:
  // not_finite, one float32, becomes 0 where all elements are finite, else 1, and all are divided by scale.
  // clip_to_norm: does what optim::clip_grads_with_norm() does, with the root of the sum.
  DDPRUN_ENTRY(square_sum, void(Tensors tensors, Tensor& sum));
  DDPRUN_ENTRY(clip_to_norm, void(Tensors tensors, double max_norm, In square_sum));
  DDPRUN_ENTRY(clip_to_value, void(Tensors tensors, double max_value));
  DDPRUN_ENTRY(unscale, void(Tensors tensors, double scale, Tensor& not_finite));
#undef DDPRUN_ENTRY
};

// The table of a device's type. Throws what cuda::api() throws where a CUDA device is asked for and there is no module.
const Table& table(Device device);
inline const Table& of(const Tensor& tensor) {
  return table(tensor.device());
}

// --- shorthands, with a new tensor as result

void copy(const Tensor& from, Tensor& to);
void fill(Tensor& to, double value);
Tensor unary(Unary function, const Tensor& x, const Arguments& arguments = {});
// Adds tensors of equal shapes.
Tensor add(const Tensor& a, const Tensor& b);
void add_in_place(Tensor& a, const Tensor& b);  // a += b
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& a, double factor);
Tensor sum(const Tensor& x);  // the sum of all elements, a scalar
// Returns the sum over the dimensions in which x was broadcast from shape.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Returns, for each row of (rows, n), the first index of its maximum; int64.
Tensor argmax_rows(const Tensor& scores);
// The host waits for a CUDA device. Of several tensors none is read after the first that is not finite.
bool all_finite(const Tensor& x);
bool all_finite(const std::vector<Tensor>& tensors);

}  // namespace ddprun::kernels
