#include <algorithm>
#include <cstdint>
#include <cudnn.h>
#include <functional>
#include <optional>

#include "worker/cuda/emulator/library_memory.h"

// cuDNN's convolutions by plain loops over row-major images.

struct cudnnContext {
  int device;
  CUstream_st* stream;
};

struct cudnnTensorStruct {
  cudnnDataType_t type;
  int n, c, h, w;  // 0 if it is not set yet
};

struct cudnnFilterStruct {
  cudnnDataType_t type;
  int k, c, h, w;
};

struct cudnnConvolutionStruct {
  int padding_h, padding_w, stride_h, stride_w, dilation_h, dilation_w;
  cudnnConvolutionMode_t mode;
  cudnnDataType_t computed;
  int groups;
  cudnnMathType_t math;
};

namespace ddprun::cuda::emulator {
namespace {

std::optional<Element> element_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return Element::float32;
    case CUDNN_DATA_DOUBLE:
      return Element::float64;
    case CUDNN_DATA_HALF:
      return Element::float16;
    case CUDNN_DATA_BFLOAT16:
      return Element::bfloat16;
  }
  return std::nullopt;
}

struct Problem {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct o;

  Element element() const { return *element_of(x.type); }
  std::size_t x_size() const { return static_cast<std::size_t>(x.n) * plane_size(x) * static_cast<std::size_t>(x.c); }
  std::size_t y_size() const { return static_cast<std::size_t>(y.n) * plane_size(y) * static_cast<std::size_t>(y.c); }
  std::size_t w_size() const {
    return static_cast<std::size_t>(w.k) * static_cast<std::size_t>(w.c) * static_cast<std::size_t>(w.h) *
           static_cast<std::size_t>(w.w);
  }
  static std::size_t plane_size(const cudnnTensorStruct& t) {
    return static_cast<std::size_t>(t.h) * static_cast<std::size_t>(t.w);
  }
};

std::optional<Problem> problem_of(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t o,
                                  cudnnTensorDescriptor_t y) {
  if (x == nullptr || w == nullptr || o == nullptr || y == nullptr) return std::nullopt;
  return Problem{*x, *y, *w, *o};
}

int outputs(int in, int padding, int kernel, int dilation, int stride) {
  return (in + 2 * padding - ((kernel - 1) * dilation + 1)) / stride + 1;
}

cudnnStatus_t check_shapes(const Problem& p) {
  const bool set = p.x.n > 0 && p.y.n > 0 && p.w.k > 0 && p.o.groups > 0 && p.o.stride_h > 0;
  if (!set) return CUDNN_STATUS_BAD_PARAM;
  const bool fits = p.x.c == p.w.c * p.o.groups && p.w.k % p.o.groups == 0 && p.y.n == p.x.n && p.y.c == p.w.k &&
                    p.y.h == outputs(p.x.h, p.o.padding_h, p.w.h, p.o.dilation_h, p.o.stride_h) &&
                    p.y.w == outputs(p.x.w, p.o.padding_w, p.w.w, p.o.dilation_w, p.o.stride_w);
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
}

// Checks for the configurations in the documentation of cudnnConvolutionForward(): all of one type, with sums in
// float32, or all double.
cudnnStatus_t check_types(const Machine& machine, const Problem& p) {
  const cudnnDataType_t computed = p.x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  if (p.y.type != p.x.type || p.w.type != p.x.type || p.o.computed != computed) return CUDNN_STATUS_BAD_PARAM;
  if (p.o.mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_NOT_SUPPORTED;
  if (p.x.type == CUDNN_DATA_BFLOAT16 && machine.settings().major < 8) return CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check(const Machine& machine, const Problem& p) {
  const cudnnStatus_t status = check_shapes(p);
  return status == CUDNN_STATUS_SUCCESS ? check_types(machine, p) : status;
}

float rounded_to_tf32(float value) {
  return bits_as<float>((bits_as<std::uint32_t>(value) + 0x1000) & ~std::uint32_t{0x1fff});
}

// Without a restriction, float32 is multiplied in TF32 where the device can.
template <class T>
std::vector<T> operand(const Machine& machine, const Problem& p, const void* from, std::size_t count) {
  std::vector<T> values = read<T>(p.element(), from, count);
  if constexpr (std::is_same_v<T, float>)
    if (p.x.type == CUDNN_DATA_FLOAT && p.o.math != CUDNN_FMA_MATH && machine.settings().major >= 8)
      std::transform(values.begin(), values.end(), values.begin(), rounded_to_tf32);
  return values;
}

// The outputs [first, last) along one direction for which the kernel's position k reads an input; output o reads o *
// stride + offset.
struct Run {
  int first, last, stride, offset;
};
Run run_of(int k, int in, int out, int padding, int dilation, int stride) {
  const int offset = k * dilation - padding;
  int first = 0, last = out;
  while (first < last && first * stride + offset < 0) ++first;
  while (last > first && (last - 1) * stride + offset >= in) --last;
  return {first, last, stride, offset};
}

// One row of outputs that one weight contributes to: where they begin, and where the inputs begin that they read.
struct Line {
  std::size_t weight, input, output;
  int count, stride;
};

template <class Visit>
void for_each_line_of_weight(const Problem& p, int image, int k, int c, Visit visit) {
  const int channel = k / (p.w.k / p.o.groups) * p.w.c + c;
  const std::size_t x_plane = static_cast<std::size_t>(image * p.x.c + channel) * Problem::plane_size(p.x);
  const std::size_t y_plane = static_cast<std::size_t>(image * p.y.c + k) * Problem::plane_size(p.y);
  for (int ky = 0; ky < p.w.h; ++ky) {
    const Run rows = run_of(ky, p.x.h, p.y.h, p.o.padding_h, p.o.dilation_h, p.o.stride_h);
    for (int kx = 0; kx < p.w.w; ++kx) {
      const Run columns = run_of(kx, p.x.w, p.y.w, p.o.padding_w, p.o.dilation_w, p.o.stride_w);
      if (columns.first == columns.last) continue;
      const auto weight = static_cast<std::size_t>(((k * p.w.c + c) * p.w.h + ky) * p.w.w + kx);
      for (int row = rows.first; row < rows.last; ++row) {
        const int y = row * rows.stride + rows.offset, x = columns.first * columns.stride + columns.offset;
        visit(Line{weight, x_plane + static_cast<std::size_t>(y * p.x.w + x),
                   y_plane + static_cast<std::size_t>(row * p.y.w + columns.first), columns.last - columns.first,
                   columns.stride});
      }
    }
  }
}

// backwards: true for the opposite order.
template <class Visit>
void for_each_line(const Problem& p, bool backwards, Visit visit) {
  for (int i = 0; i < p.x.n; ++i)
    for (int k = 0; k < p.w.k; ++k)
      for (int c = 0; c < p.w.c; ++c)
        for_each_line_of_weight(p, backwards ? p.x.n - 1 - i : i, backwards ? p.w.k - 1 - k : k, c, visit);
}

template <class T>
struct Scaling {
  T alpha, beta;
};
template <class T>
Scaling<T> scaling_of(const void* alpha, const void* beta) {
  Scaling<T> scaling;
  std::memcpy(&scaling.alpha, alpha, sizeof(T));
  std::memcpy(&scaling.beta, beta, sizeof(T));
  return scaling;
}

struct Operands {
  const void *first, *second;  // in the order of the library's arguments
  void* out;
  void* workspace;
  std::size_t workspace_bytes;
  const void *alpha, *beta;
  bool backwards;  // true for an algorithm that adds atomically: in another order at every second call
};

template <class T>
void forward(const Machine& machine, const Problem& p, const Operands& o, Scaling<T> scaling) {
  const auto x = operand<T>(machine, p, o.first, p.x_size()), w = operand<T>(machine, p, o.second, p.w_size());
  std::vector<T> y(p.y_size(), T(0));
  for_each_line(p, o.backwards, [&](const Line& line) {
    const T weight = w[line.weight];
    const T* from = x.data() + line.input;
    T* to = y.data() + line.output;
    for (std::ptrdiff_t i = 0; i < line.count; ++i) to[i] += weight * from[i * line.stride];
  });
  write<T>(p.element(), y.data(), y.size(), scaling.alpha, scaling.beta, o.out);
}

template <class T>
void backward_data(const Machine& machine, const Problem& p, const Operands& o, Scaling<T> scaling) {
  const auto w = operand<T>(machine, p, o.first, p.w_size()), dy = operand<T>(machine, p, o.second, p.y_size());
  std::vector<T> dx(p.x_size(), T(0));
  for_each_line(p, o.backwards, [&](const Line& line) {
    const T weight = w[line.weight];
    const T* from = dy.data() + line.output;
    T* to = dx.data() + line.input;
    for (std::ptrdiff_t i = 0; i < line.count; ++i) to[i * line.stride] += weight * from[i];
  });
  write<T>(p.element(), dx.data(), dx.size(), scaling.alpha, scaling.beta, o.out);
}

template <class T>
void backward_filter(const Machine& machine, const Problem& p, const Operands& o, Scaling<T> scaling) {
  const auto x = operand<T>(machine, p, o.first, p.x_size()), dy = operand<T>(machine, p, o.second, p.y_size());
  std::vector<T> dw(p.w_size(), T(0));
  for_each_line(p, o.backwards, [&](const Line& line) {
    const T *from = x.data() + line.input, *grad = dy.data() + line.output;
    T sum = 0;
    for (std::ptrdiff_t i = 0; i < line.count; ++i) sum += from[i * line.stride] * grad[i];
    dw[line.weight] += sum;
  });
  write<T>(p.element(), dw.data(), dw.size(), scaling.alpha, scaling.beta, o.out);
}

template <class T>
using Pass = void (*)(const Machine&, const Problem&, const Operands&, Scaling<T>);

template <class T>
StreamOperation operation_of(const Call& call, const Problem& p, const Operands& o, std::vector<Region> regions,
                             Pass<T> pass, Device& device) {
  const Scaling<T> scaling = scaling_of<T>(o.alpha, o.beta);
  regions.push_back({o.workspace, o.workspace_bytes});
  return [=, &machine = call.machine(), &device] {
    if (!are_allocated(device, regions)) return true;
    spoil(o.workspace, o.workspace_bytes);
    pass(machine, p, o, scaling);
    return true;
  };
}

// The bytes of the three tensors, in the order of the library's arguments.
struct Sizes {
  std::size_t first, second, out;
};

cudnnStatus_t run(const Call& call, cudnnHandle_t handle, const std::optional<Problem>& p, const Operands& o,
                  std::size_t wanted_workspace, Sizes sizes, Pass<float> pass, Pass<double> wide_pass) {
  if (call.fails()) return call.failure(CUDNN_STATUS_EXECUTION_FAILED);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (!p || o.first == nullptr || o.second == nullptr || o.out == nullptr || o.alpha == nullptr || o.beta == nullptr)
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (const cudnnStatus_t status = check(call.machine(), *p); status != CUDNN_STATUS_SUCCESS) return status;
  if (o.workspace_bytes < wanted_workspace || (o.workspace == nullptr && o.workspace_bytes > 0))
    return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  CUstream_st* const stream = call.machine().find_stream(handle->stream);
  if (stream == nullptr) return CUDNN_STATUS_BAD_PARAM;
  Device& device = call.machine().device(stream->device);
  if (device.fault != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  const std::size_t element = size_of(p->element());
  const std::vector<Region> regions{
      {o.first, sizes.first * element}, {o.second, sizes.second * element}, {o.out, sizes.out * element}};
  call.machine().enqueue(stream, p->x.type == CUDNN_DATA_DOUBLE
                                     ? operation_of<double>(call, *p, o, regions, wide_pass, device)
                                     : operation_of<float>(call, *p, o, regions, pass, device));
  return CUDNN_STATUS_SUCCESS;
}

// An algorithm of the emulator.
template <class Algorithm>
struct Candidate {
  Algorithm algorithm;
  bool is_deterministic;
  std::size_t workspace;
  bool transforms;  // true for Winograd's: 3 x 3, without stride, dilation and groups, not in double
};
constexpr Candidate<cudnnConvolutionFwdAlgo_t> forward_candidates[] = {
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, true, 16384, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, 4096, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, 0, false}};
constexpr Candidate<cudnnConvolutionBwdDataAlgo_t> data_candidates[] = {
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, 0, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, true, 16384, true},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, 4096, false}};
constexpr Candidate<cudnnConvolutionBwdFilterAlgo_t> filter_candidates[] = {
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, 0, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, 4096, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, true, 16384, true},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, 4096, false}};

template <class Algorithm, std::size_t count>
const Candidate<Algorithm>* find(const Candidate<Algorithm> (&candidates)[count], const Problem& p,
                                 Algorithm algorithm) {
  const bool can_transform = p.w.h == 3 && p.w.w == 3 && p.o.stride_h == 1 && p.o.stride_w == 1 &&
                             p.o.dilation_h == 1 && p.o.dilation_w == 1 && p.o.groups == 1 &&
                             p.x.type != CUDNN_DATA_DOUBLE;
  for (const Candidate<Algorithm>& candidate : candidates)
    if (candidate.algorithm == algorithm && (can_transform || !candidate.transforms)) return &candidate;
  return nullptr;
}

// Returns what suits first, then what does not, up to `requested` entries.
template <class Performance, class Algorithm, std::size_t count>
cudnnStatus_t answer(const Call& call, cudnnHandle_t handle, const std::optional<Problem>& p,
                     const Candidate<Algorithm> (&candidates)[count], int requested, int* returned,
                     Performance* results) {
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (!p || returned == nullptr || results == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (requested < 1) return CUDNN_STATUS_BAD_PARAM;
  if (const cudnnStatus_t status = check(call.machine(), *p); status != CUDNN_STATUS_SUCCESS) return status;
  std::vector<Performance> all;
  for (const Candidate<Algorithm>& one : candidates) {
    const bool suits = find(candidates, *p, one.algorithm) != nullptr;
    all.push_back({one.algorithm,
                   suits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
                   suits ? 1.0f : -1.0f,
                   one.workspace,
                   one.is_deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                   p->o.math,
                   {}});
  }
  std::stable_partition(all.begin(), all.end(), [](const auto& one) { return one.status == CUDNN_STATUS_SUCCESS; });
  *returned = std::min(requested, static_cast<int>(all.size()));
  std::copy_n(all.begin(), *returned, results);
  return CUDNN_STATUS_SUCCESS;
}

template <class Algorithm, std::size_t count>
cudnnStatus_t workspace_of(const Call& call, cudnnHandle_t handle, const std::optional<Problem>& p,
                           const Candidate<Algorithm> (&candidates)[count], Algorithm algorithm, std::size_t* bytes) {
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (!p || bytes == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (const cudnnStatus_t status = check(call.machine(), *p); status != CUDNN_STATUS_SUCCESS) return status;
  const Candidate<Algorithm>* candidate = find(candidates, *p, algorithm);
  if (candidate == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = candidate->workspace;
  return CUDNN_STATUS_SUCCESS;
}

// Returns whether this call of an algorithm that adds atomically goes backwards; every second one of a function does.
bool is_backwards(bool is_deterministic, bool& next) {
  if (!is_deterministic) next = !next;
  return !is_deterministic && !next;
}

template <class Descriptor>
cudnnStatus_t create(const Call& call, Descriptor** descriptor) {
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *descriptor = new Descriptor{};
  ++call.machine().library_objects();
  return CUDNN_STATUS_SUCCESS;
}

template <class Object>
cudnnStatus_t destroy(const Call& call, Object* object) {
  if (object != nullptr) --call.machine().library_objects();
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace ddprun::cuda::emulator

namespace emulator = ddprun::cuda::emulator;
using emulator::Call;

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT:
      return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH:
      return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE:
      return "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE";
    case CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH:
      return "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH";
    case CUDNN_STATUS_INTERNAL_ERROR:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
      return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

size_t cudnnGetVersion() {
  return static_cast<size_t>(emulator::Machine::get().settings().cudnn.value_or(CUDNN_VERSION));
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Call call("cudnnCreate");
  if (call.fails()) return call.failure(CUDNN_STATUS_NOT_INITIALIZED);
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *handle = new cudnnContext{call.machine().current_device(), nullptr};
  ++call.machine().library_objects();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return emulator::destroy(Call("cudnnDestroy"), handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const Call call("cudnnSetStream");
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (call.machine().find_stream(stream) == nullptr) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  return emulator::create(Call("cudnnCreateTensorDescriptor"), descriptor);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return emulator::destroy(Call("cudnnDestroyTensorDescriptor"), descriptor);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  const Call call("cudnnSetTensor4dDescriptor");
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (n < 1 || c < 1 || h < 1 || w < 1 || !emulator::element_of(type)) return CUDNN_STATUS_BAD_PARAM;
  constexpr double most_elements = 2147483648.0;
  const double elements = static_cast<double>(n) * c * h * w;
  if (format != CUDNN_TENSOR_NCHW || elements >= most_elements) return CUDNN_STATUS_NOT_SUPPORTED;
  *descriptor = {type, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  return emulator::create(Call("cudnnCreateFilterDescriptor"), descriptor);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  return emulator::destroy(Call("cudnnDestroyFilterDescriptor"), descriptor);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  const Call call("cudnnSetFilter4dDescriptor");
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (k < 1 || c < 1 || h < 1 || w < 1 || !emulator::element_of(type)) return CUDNN_STATUS_BAD_PARAM;
  if (format != CUDNN_TENSOR_NCHW) return CUDNN_STATUS_NOT_SUPPORTED;
  *descriptor = {type, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  return emulator::create(Call("cudnnCreateConvolutionDescriptor"), descriptor);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  return emulator::destroy(Call("cudnnDestroyConvolutionDescriptor"), descriptor);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int padding_h, int padding_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t computed) {
  const Call call("cudnnSetConvolution2dDescriptor");
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (padding_h < 0 || padding_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1 ||
      !emulator::element_of(computed))
    return CUDNN_STATUS_BAD_PARAM;
  *descriptor = {padding_h,  padding_w, stride_h, stride_w, dilation_h,
                 dilation_w, mode,      computed, 1,        CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups) {
  const Call call("cudnnSetConvolutionGroupCount");
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (descriptor == nullptr || groups < 1) return CUDNN_STATUS_BAD_PARAM;
  descriptor->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  const Call call("cudnnSetConvolutionMathType");
  if (call.fails()) return call.failure(CUDNN_STATUS_INTERNAL_ERROR);
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  descriptor->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t operation,
                                                     const cudnnTensorDescriptor_t y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  return emulator::answer(Call("cudnnGetConvolutionForwardAlgorithm_v7"), handle,
                          emulator::problem_of(x, w, operation, y), emulator::forward_candidates, requested, returned,
                          results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t operation,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return emulator::workspace_of(Call("cudnnGetConvolutionForwardWorkspaceSize"), handle,
                                emulator::problem_of(x, w, operation, y), emulator::forward_candidates, algorithm,
                                bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_layout,
                                      const void* x, const cudnnFilterDescriptor_t w_layout, const void* w,
                                      const cudnnConvolutionDescriptor_t operation, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_layout, void* y) {
  const Call call("cudnnConvolutionForward");
  const auto p = emulator::problem_of(x_layout, w_layout, operation, y_layout);
  if (!p) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const auto* candidate = emulator::find(emulator::forward_candidates, *p, algorithm);
  if (candidate == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  return emulator::run(call, handle, p, {x, w, y, workspace, workspace_bytes, alpha, beta, false}, candidate->workspace,
                       {p->x_size(), p->w_size(), p->y_size()}, emulator::forward<float>, emulator::forward<double>);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t operation,
                                                          const cudnnTensorDescriptor_t dx, const int requested,
                                                          int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return emulator::answer(Call("cudnnGetConvolutionBackwardDataAlgorithm_v7"), handle,
                          emulator::problem_of(dx, w, operation, dy), emulator::data_candidates, requested, returned,
                          results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t operation,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return emulator::workspace_of(Call("cudnnGetConvolutionBackwardDataWorkspaceSize"), handle,
                                emulator::problem_of(dx, w, operation, dy), emulator::data_candidates, algorithm,
                                bytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_layout, const void* w,
                                           const cudnnTensorDescriptor_t dy_layout, const void* dy,
                                           const cudnnConvolutionDescriptor_t operation,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_layout, void* dx) {
  static bool next_is_backwards = false;
  const Call call("cudnnConvolutionBackwardData");
  const auto p = emulator::problem_of(dx_layout, w_layout, operation, dy_layout);
  if (!p) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const auto* candidate = emulator::find(emulator::data_candidates, *p, algorithm);
  if (candidate == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  return emulator::run(call, handle, p,
                       {w, dy, dx, workspace, workspace_bytes, alpha, beta,
                        emulator::is_backwards(candidate->is_deterministic, next_is_backwards)},
                       candidate->workspace, {p->w_size(), p->y_size(), p->x_size()}, emulator::backward_data<float>,
                       emulator::backward_data<double>);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t operation,
                                                            const cudnnFilterDescriptor_t dw, const int requested,
                                                            int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return emulator::answer(Call("cudnnGetConvolutionBackwardFilterAlgorithm_v7"), handle,
                          emulator::problem_of(x, dw, operation, dy), emulator::filter_candidates, requested, returned,
                          results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t operation,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return emulator::workspace_of(Call("cudnnGetConvolutionBackwardFilterWorkspaceSize"), handle,
                                emulator::problem_of(x, dw, operation, dy), emulator::filter_candidates, algorithm,
                                bytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_layout, const void* x,
                                             const cudnnTensorDescriptor_t dy_layout, const void* dy,
                                             const cudnnConvolutionDescriptor_t operation,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_layout, void* dw) {
  static bool next_is_backwards = false;
  const Call call("cudnnConvolutionBackwardFilter");
  const auto p = emulator::problem_of(x_layout, dw_layout, operation, dy_layout);
  if (!p) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const auto* candidate = emulator::find(emulator::filter_candidates, *p, algorithm);
  if (candidate == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  return emulator::run(call, handle, p,
                       {x, dy, dw, workspace, workspace_bytes, alpha, beta,
                        emulator::is_backwards(candidate->is_deterministic, next_is_backwards)},
                       candidate->workspace, {p->x_size(), p->y_size(), p->w_size()}, emulator::backward_filter<float>,
                       emulator::backward_filter<double>);
}
