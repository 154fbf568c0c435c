#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "common/errc.h"
#include "worker/tensor/functors/binary.h"
#include "worker/tensor/functors/unary.h"
#include "worker/tensor/geometry.h"
#include "worker/tensor/step_rules.h"

// The interface between the worker and the module that has the code for CUDA devices: a table of functions over plain
// memory. The module (module/, libddprun_cuda.so) is compiled by nvcc, or by a C++ compiler over the emulator of
// worker/cuda; the worker opens it when a tensor on "cuda:k" is wanted, so it needs no CUDA itself. Neither side sees
// the other's classes: tensors, allocation of results and checks of shapes are the worker's (table.cc), kernels,
// libraries and streams the module's.
//
// Memory: every pointer in a View is device memory of the device that the call names.
// Order: all calls of a device are asynchronous on its compute stream unless a comment says otherwise, so a result may
//   be used by the next call at once; the host sees it after copy() to the host and synchronize().
// Threads: one thread at a time for a device; any thread for memory functions.
// Errors: nullptr, or what failed; the text is valid until the calling thread's next call. A fault of a kernel is
//   reported by a later call.
namespace ddprun::cuda {

// Changes with every change of this file and of the structures in geometry.h and step_rules.h that its functions take.
// The worker refuses a module with another number.
inline constexpr std::uint32_t interface_version = 3;

// A device's context: streams, library handles, its allocator. Made by open(), never destroyed.
struct DeviceContext;

struct Failure {
  Errc code;
  int device;             // the one that has not enough memory
  std::size_t exhausted;  // the bytes that it has not; 0 for another failure
  std::array<char, 1024> text;
};
using Outcome = const Failure*;

// An operand: strided memory. data is null for an operand that is left out.
struct View {
  static constexpr int max_rank = 6;
  void* data = nullptr;
  DType dtype = DType::float32;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};  // in elements
};

// Operations that a product computes as well (kernels::MatmulFusion).
struct ProductFusion {
  View bias, addend, gelu_input, gelu_gradient, sums;
  bool sums_of_a = false, accumulate_sums = false;
};

// Copies of memory between host and device run beside the kernels, and so do collectives.
enum class Queue : std::uint8_t { compute, communication, copies };

enum class Direction : std::uint8_t { to_device, to_host, on_device };

struct DeviceFacts {
  std::array<char, 256> name;
  std::array<char, 32> bus_id;  // such as "0000:01:00.0"
  int major, minor;             // compute capability
  std::size_t total_bytes, free_bytes;
  int driver_version, runtime_version;  // 13000 means 13.0
};

struct DeviceMemoryFacts {
  std::size_t allocated;  // used by tensors and as workspaces of operations now
  std::size_t reserved;   // taken from the driver: allocated and kept for the next allocation
  std::size_t free, total;
};

struct DeviceApi {
  std::uint32_t version;  // interface_version of the module
  bool emulated;

  // --- devices
  Outcome (*device_count)(int* count);
  // Finds the context of a device; it is the same one for every call with this number.
  Outcome (*open)(int ordinal, DeviceContext** device);
  Outcome (*describe)(DeviceContext*, DeviceFacts* facts);
  // Sets whether products and convolutions of float32 multiply in TF32, from the next call on; at first they do not.
  // Refused before sm_80.
  Outcome (*allow_tf32)(DeviceContext*, bool allow);

  // --- memory
  // Allocates device memory that may be used by the compute stream from now on. Before it fails, what is kept is given
  // back to the driver.
  Outcome (*allocate)(DeviceContext*, std::size_t bytes, void** memory);
  // May be called while kernels that use it are still queued on the compute stream.
  void (*release)(DeviceContext*, void* memory, std::size_t bytes);
  Outcome (*memory_facts)(DeviceContext*, DeviceMemoryFacts* facts);
  // Allocates page-locked memory of the host, for copies that do not wait.
  Outcome (*allocate_pinned)(std::size_t bytes, void** memory);
  void (*release_pinned)(void* memory);
  // The copy is asynchronous on the queue where the host's side is pinned, else it may wait.
  Outcome (*copy_bytes)(DeviceContext*, Queue, Direction, void* to, const void* from, std::size_t bytes);
  // Copies from a device to another one of this process, after what both compute streams had before. Any thread may
  // call it, while others use the devices.
  Outcome (*copy_peer)(DeviceContext* to_device, void* to, DeviceContext* from_device, const void* from,
                       std::size_t bytes);

  // --- order
  // Makes all that is queued on `later` from now on begin after all that is queued on `earlier`.
  Outcome (*order)(DeviceContext*, Queue earlier, Queue later);
  Outcome (*synchronize)(DeviceContext*, Queue);          // waits; reports what has failed on it
  Outcome (*is_idle)(DeviceContext*, Queue, bool* idle);  // does not wait
  void* (*stream)(DeviceContext*, Queue);                 // its cudaStream_t
  // Events, for measuring. elapsed() is valid once the later one is reached.
  Outcome (*create_event)(DeviceContext*, void** event);
  void (*destroy_event)(void* event);
  Outcome (*record_event)(DeviceContext*, Queue, void* event);
  Outcome (*event_reached)(void* event, bool* reached);
  Outcome (*elapsed)(void* from, void* to, double* seconds);
  // The numbers of the host's waits for a device so far, and of kernels and library calls that were queued.
  std::uint64_t (*synchronizations)(DeviceContext*);
  std::uint64_t (*launches)(DeviceContext*);

  // --- kernels: the entries of kernels::Table, in its order and with its meaning (kernels.h). Results are allocated by
  // the caller. "strided" and "dense" are as there; a blocked layout does not exist on these devices.
  Outcome (*unary)(DeviceContext*, functor::Unary, const functor::Arguments&, const View& x, const View& y);
  Outcome (*unary_gradient)(DeviceContext*, functor::Unary, const functor::Arguments&, const View& saved,
                            const View& grad, const View& out);
  // a and b have out's shape, with strides of 0 where they are broadcast.
  Outcome (*binary)(DeviceContext*, functor::Binary, const functor::Arguments&, const View& a, const View& b,
                    const View& out);
  Outcome (*binary_gradient)(DeviceContext*, functor::Binary, const functor::Arguments&, int operand, const View& a,
                             const View& b, const View& grad, const View& out);
  Outcome (*compare)(DeviceContext*, functor::Comparison, const View& a, const View& b, const View& out);
  Outcome (*where)(DeviceContext*, const View& cond, const View& a, const View& b, const View& out);
  // Copies any two dtypes, both strided, elements in row-major order of each one's shape.
  Outcome (*copy)(DeviceContext*, const View& from, const View& to);
  // from and to: `count` of them each, in memory of the host.
  Outcome (*cast_all)(DeviceContext*, const View* from, const View* to, std::int64_t count);
  Outcome (*fill)(DeviceContext*, const View& to, double value);
  // streams: in memory of the host, one for each row.
  Outcome (*dropout)(DeviceContext*, const View& x, double probability, std::uint64_t seed,
                     const std::uint64_t* streams, std::int64_t rows, std::uint64_t first, const View& out);

  Outcome (*sum)(DeviceContext*, const View& x, const kernels::Axis&, const View& out);
  Outcome (*max)(DeviceContext*, const View& x, const kernels::Axis&, const View& out, const View& index);
  Outcome (*softmax)(DeviceContext*, const View& x, const kernels::Axis& rows, bool log, const View& y);
  Outcome (*softmax_gradient)(DeviceContext*, const View& y, const View& grad, const kernels::Axis& rows, bool log,
                              const View& out);

  Outcome (*gather)(DeviceContext*, const View& x, const kernels::Axis&, const View& index, const View& out);
  Outcome (*scatter_add)(DeviceContext*, const View& x, const kernels::Axis& of_out, const View& index,
                         const View& out);
  Outcome (*scatter)(DeviceContext*, const View& x, const kernels::Axis& of_out, const View& index, const View& out);
  Outcome (*gather_rows)(DeviceContext*, const View& table, const View& index, const View& out);
  Outcome (*scatter_add_rows)(DeviceContext*, const View& x, const View& index, const View& out);

  Outcome (*add_bias)(DeviceContext*, const View& x, const View& bias, std::int64_t outer, std::int64_t inner);
  Outcome (*sum_to_bias)(DeviceContext*, const View& grad, std::int64_t outer, std::int64_t inner, const View& out,
                         bool accumulate);

  // bias: (n) or left out.
  Outcome (*matmul)(DeviceContext*, const View& bias, const View& a, const View& b, const View& out,
                    const kernels::MatmulOptions&);
  Outcome (*batched_matmul)(DeviceContext*, const View& a, const View& b, const View& out,
                            const kernels::MatmulOptions&);
  Outcome (*fused_matmul)(DeviceContext*, const View& a, const View& b, const View& out, const ProductFusion&,
                          const kernels::MatmulOptions&);
  // Writes the least and largest element into two float32 of the device.
  Outcome (*value_range)(DeviceContext*, const View& x, const View& range);

  Outcome (*conv2d)(DeviceContext*, const kernels::ConvGeometry&, const View& x, const View& weight, const View& bias,
                    const View& out);
  Outcome (*conv2d_backward_input)(DeviceContext*, const kernels::ConvGeometry&, const View& grad, const View& weight,
                                   const View& out);
  Outcome (*conv2d_backward_weight)(DeviceContext*, const kernels::ConvGeometry&, const View& x, const View& grad,
                                    const View& weight_grad, bool accumulate);

  Outcome (*max_pool2d)(DeviceContext*, const kernels::PoolGeometry&, const View& x, const View& out,
                        const View& index);
  Outcome (*max_pool2d_backward)(DeviceContext*, const kernels::PoolGeometry&, const View& grad, const View& index,
                                 const View& out);
  Outcome (*avg_pool2d)(DeviceContext*, const kernels::PoolGeometry&, const View& x, const View& out);
  Outcome (*avg_pool2d_backward)(DeviceContext*, const kernels::PoolGeometry&, const View& grad, const View& out);
  Outcome (*adaptive_avg_pool2d)(DeviceContext*, const kernels::PoolGeometry&, const View& x, const View& out);
  Outcome (*adaptive_avg_pool2d_backward)(DeviceContext*, const kernels::PoolGeometry&, const View& grad,
                                          const View& out);

  Outcome (*batch_statistics)(DeviceContext*, const View& x, std::int64_t outer, std::int64_t inner, double eps,
                              const View& mean, const View& inverse, const View& variance);
  Outcome (*inverse_deviation)(DeviceContext*, const View& variance, double eps, const View& out);
  Outcome (*batch_norm)(DeviceContext*, const View& x, std::int64_t outer, std::int64_t inner, const View& mean,
                        const View& inverse, const View& weight, const View& bias, const View& out);
  Outcome (*batch_norm_backward)(DeviceContext*, const View& x, const View& grad, std::int64_t outer,
                                 std::int64_t inner, const View& mean, const View& inverse, const View& weight,
                                 bool training, const View& x_grad, const View& weight_grad, const View& bias_grad);
  // mean is left out where centred is false.
  Outcome (*group_norm)(DeviceContext*, const View& x, const kernels::Axis& groups, bool centred, double eps,
                        const View& weight, const View& bias, const View& mean, const View& inverse, const View& out);
  Outcome (*group_norm_backward)(DeviceContext*, const View& x, const View& grad, const kernels::Axis& groups,
                                 bool centred, const View& mean, const View& inverse, const View& weight,
                                 const View& x_grad, const View& weight_grad, const View& bias_grad);
  // x_copy, weight_grad and bias_grad: given where wanted.
  Outcome (*row_norm_backward)(DeviceContext*, const View& x, const View& grad, const View& addend,
                               const kernels::Axis& rows, bool centred, const View& mean, const View& inverse,
                               const View& weight, const View& x_grad, const View& x_copy, const View& weight_grad,
                               bool accumulate_weight, const View& bias_grad, bool accumulate_bias);

  Outcome (*nll_loss)(DeviceContext*, const View& log_probabilities, const View& targets,
                      const kernels::CrossEntropyOptions&, const View& loss);
  Outcome (*nll_loss_backward)(DeviceContext*, const View& log_probabilities, const View& targets,
                               const kernels::CrossEntropyOptions&, double factor, const View& out);
  Outcome (*cross_entropy_backward)(DeviceContext*, const View& log_probabilities, const View& targets,
                                    const kernels::CrossEntropyOptions&, double factor, const View& out);
  // input_grad and weight_grad: both are given or none.
  Outcome (*linear_cross_entropy)(DeviceContext*, const View& input, const View& weight, const View& targets,
                                  const kernels::LinearLossOptions&, const View& loss, const View& share,
                                  const View& input_grad, const View& weight_grad);
  Outcome (*scale_by)(DeviceContext*, const View& x, const View& a, const View& b, const View& out, bool accumulate);

  Outcome (*attention)(DeviceContext*, const View& query, const View& key, const View& value, const View& mask,
                       const kernels::AttentionOptions&, const View& out, const View& log_sum);
  // grad_dot_out: left out where these are all keys.
  Outcome (*attention_backward)(DeviceContext*, const View& query, const View& key, const View& value, const View& mask,
                                const View& log_sum, const View& grad_dot_out, const View& grad,
                                const kernels::AttentionOptions&, const View& query_grad, const View& key_grad,
                                const View& value_grad, bool accumulate);
  Outcome (*merge_attention)(DeviceContext*, const View& part_out, const View& part_log_sum, const View& all_out,
                             const View& all_log_sum);

  // Operations on many tensors: lists of `count` views each, in memory of the host. The k-th of each list have as many
  // elements, but for `started`, one int64 each. momenta and started are null where there are none.
  Outcome (*sgd_step)(DeviceContext*, std::size_t count, const View* values, const View* grads, const View* momenta,
                      const View* started, const kernels::SgdStep&);
  Outcome (*adam_step)(DeviceContext*, std::size_t count, const View* values, const View* grads, const View* averages,
                       const View* square_averages, const kernels::AdamStep&);
  Outcome (*ema_step)(DeviceContext*, std::size_t count, const View* averages, const View* values,
                      const kernels::EmaStep&);
  // sum: one float64.
  Outcome (*square_sum)(DeviceContext*, std::size_t count, const View* tensors, const View& sum);
  Outcome (*clip_to_norm)(DeviceContext*, std::size_t count, const View* tensors, double max_norm,
                          const View& square_sum);
  Outcome (*clip_to_value)(DeviceContext*, std::size_t count, const View* tensors, double max_value);
  // scale: one float64. not_finite: one float32.
  Outcome (*unscale)(DeviceContext*, std::size_t count, const View* tensors, const View& scale, const View& not_finite);
  // state: a StepState. loss_scale, skip: one float32 each.
  Outcome (*decide_step)(DeviceContext*, const kernels::StepRules&, const kernels::StepFindings&, const View& state,
                         const View& loss_scale, const View& skip);
};

// The one function that a module exports, with C linkage under this name: const DeviceApi* ddprun_cuda_device_api().
inline constexpr const char* entry_point = "ddprun_cuda_device_api";
using EntryPoint = const DeviceApi*();

}  // namespace ddprun::cuda
