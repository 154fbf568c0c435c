#include "worker/tensor/cuda/module/convolution_plan.h"

#include <array>
#include <limits>
#include <utility>

#include "common/error.h"

namespace ddprun::cuda {
namespace {

using kernels::ConvGeometry;

// Algorithms that want more gain little by it.
constexpr std::size_t most_workspace = std::size_t{512} << 20;

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CUDNN_DATA_DOUBLE;
    case DType::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case DType::float16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// The default allows TF32 in place of float32.
cudnnMathType_t math_type(const Convolution& convolution) {
  switch (convolution.dtype) {
    case DType::float64:
      return CUDNN_DEFAULT_MATH;
    case DType::float32:
      return convolution.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    default:
      return CUDNN_TENSOR_OP_MATH;
  }
}

int narrowed(std::int64_t size, const LibraryCall& call) {
  if (size <= std::numeric_limits<int>::max()) return static_cast<int>(size);
  throw make_error(Errc::unsupported, "{} with a size of {} is not supported on {}", call.operation, size,
                   call.device.name());
}

TensorDescriptor describe_image(DType dtype, std::array<std::int64_t, 4> shape, const LibraryCall& call) {
  cudnnTensorDescriptor_t made = nullptr;
  check(cudnnCreateTensorDescriptor(&made), "cudnnCreateTensorDescriptor", call);
  TensorDescriptor descriptor(made);
  check(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NCHW, data_type(dtype), narrowed(shape[0], call),
                                   narrowed(shape[1], call), narrowed(shape[2], call), narrowed(shape[3], call)),
        "cudnnSetTensor4dDescriptor", call);
  return descriptor;
}

FilterDescriptor describe_weight(DType dtype, const ConvGeometry& g, const LibraryCall& call) {
  cudnnFilterDescriptor_t made = nullptr;
  check(cudnnCreateFilterDescriptor(&made), "cudnnCreateFilterDescriptor", call);
  FilterDescriptor descriptor(made);
  check(cudnnSetFilter4dDescriptor(made, data_type(dtype), CUDNN_TENSOR_NCHW, narrowed(g.out_channels, call),
                                   narrowed(g.in_channels / g.groups, call), narrowed(g.kernel_h, call),
                                   narrowed(g.kernel_w, call)),
        "cudnnSetFilter4dDescriptor", call);
  return descriptor;
}

ConvolutionDescriptor describe_operation(const Convolution& convolution, const LibraryCall& call) {
  const ConvGeometry& g = convolution.geometry;
  cudnnConvolutionDescriptor_t made = nullptr;
  check(cudnnCreateConvolutionDescriptor(&made), "cudnnCreateConvolutionDescriptor", call);
  ConvolutionDescriptor descriptor(made);
  const int padding = narrowed(g.padding, call), stride = narrowed(g.stride, call);
  const int dilation = narrowed(g.dilation, call);
  const DType computed = convolution.dtype == DType::float64 ? DType::float64 : DType::float32;
  check(cudnnSetConvolution2dDescriptor(made, padding, padding, stride, stride, dilation, dilation,
                                        CUDNN_CROSS_CORRELATION, data_type(computed)),
        "cudnnSetConvolution2dDescriptor", call);
  check(cudnnSetConvolutionGroupCount(made, narrowed(g.groups, call)), "cudnnSetConvolutionGroupCount", call);
  check(cudnnSetConvolutionMathType(made, math_type(convolution)), "cudnnSetConvolutionMathType", call);
  return descriptor;
}

// Returns whether it is Winograd's or Fourier's algorithm, which are less exact.
constexpr bool transforms(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT || algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD || algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
}
constexpr bool transforms(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT || algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING ||
         algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD ||
         algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED;
}
constexpr bool transforms(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT ||
         algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING ||
         algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD ||
         algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
}

// Asks for all algorithms, the fastest first as cuDNN expects, and takes the first one that suits.
template <class Performance, std::size_t most, class Ask>
auto choose(const Convolution& convolution, const char* function, const LibraryCall& call, Ask ask) {
  std::array<Performance, most> found{};
  int count = 0;
  check(ask(static_cast<int>(most), &count, found.data()), function, call);
  for (int i = 0; i < count; ++i) {
    const Performance& one = found[static_cast<std::size_t>(i)];
    if (one.status == CUDNN_STATUS_SUCCESS && one.determinism == CUDNN_DETERMINISTIC && one.memory <= most_workspace &&
        (convolution.geometry.winograd || !transforms(one.algo)))
      return one.algo;
  }
  throw make_error(Errc::unsupported, "{} of {} is not supported on {}: cuDNN has no deterministic algorithm for it",
                   call.operation, name_of(call.dtype), call.device.name());
}

struct Choice {
  int algorithm;
  std::size_t workspace_bytes = 0;
};

Choice choose_forward(cudnnHandle_t library, const ConvolutionPlan& plan, const Convolution& convolution,
                      const LibraryCall& call) {
  const auto algorithm = choose<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT>(
      convolution, "cudnnGetConvolutionForwardAlgorithm_v7", call, [&](int most, int* count, auto* found) {
        return cudnnGetConvolutionForwardAlgorithm_v7(library, plan.x(), plan.weight(), plan.operation(), plan.y(),
                                                      most, count, found);
      });
  Choice choice{algorithm};
  check(cudnnGetConvolutionForwardWorkspaceSize(library, plan.x(), plan.weight(), plan.operation(), plan.y(), algorithm,
                                                &choice.workspace_bytes),
        "cudnnGetConvolutionForwardWorkspaceSize", call);
  return choice;
}

Choice choose_input_gradient(cudnnHandle_t library, const ConvolutionPlan& plan, const Convolution& convolution,
                             const LibraryCall& call) {
  const auto algorithm = choose<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT>(
      convolution, "cudnnGetConvolutionBackwardDataAlgorithm_v7", call, [&](int most, int* count, auto* found) {
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(library, plan.weight(), plan.y(), plan.operation(), plan.x(),
                                                           most, count, found);
      });
  Choice choice{algorithm};
  check(cudnnGetConvolutionBackwardDataWorkspaceSize(library, plan.weight(), plan.y(), plan.operation(), plan.x(),
                                                     algorithm, &choice.workspace_bytes),
        "cudnnGetConvolutionBackwardDataWorkspaceSize", call);
  return choice;
}

Choice choose_weight_gradient(cudnnHandle_t library, const ConvolutionPlan& plan, const Convolution& convolution,
                              const LibraryCall& call) {
  const auto algorithm = choose<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT>(
      convolution, "cudnnGetConvolutionBackwardFilterAlgorithm_v7", call, [&](int most, int* count, auto* found) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(library, plan.x(), plan.y(), plan.operation(),
                                                             plan.weight(), most, count, found);
      });
  Choice choice{algorithm};
  check(cudnnGetConvolutionBackwardFilterWorkspaceSize(library, plan.x(), plan.y(), plan.operation(), plan.weight(),
                                                       algorithm, &choice.workspace_bytes),
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", call);
  return choice;
}

Choice choose_algorithm(cudnnHandle_t library, const ConvolutionPlan& plan, const Convolution& convolution,
                        const LibraryCall& call) {
  switch (convolution.pass) {
    case Convolution::Pass::forward:
      return choose_forward(library, plan, convolution, call);
    case Convolution::Pass::input_gradient:
      return choose_input_gradient(library, plan, convolution, call);
    default:
      return choose_weight_gradient(library, plan, convolution, call);
  }
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(cudnnHandle_t library, const Convolution& convolution, const LibraryCall& call) {
  const ConvGeometry& g = convolution.geometry;
  x_ = describe_image(convolution.dtype, {g.batch, g.in_channels, g.height, g.width}, call);
  y_ = describe_image(convolution.dtype, {g.batch, g.out_channels, g.out_h, g.out_w}, call);
  weight_ = describe_weight(convolution.dtype, g, call);
  operation_ = describe_operation(convolution, call);
  const Choice choice = choose_algorithm(library, *this, convolution, call);
  algorithm_ = choice.algorithm;
  workspace_bytes_ = choice.workspace_bytes;
}

}  // namespace ddprun::cuda
