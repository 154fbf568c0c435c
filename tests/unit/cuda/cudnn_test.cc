// The emulated cuDNN refuses what the real one does, by its numbers.
#include <array>
#include <cudnn.h>

#include "worker/tensor/cuda/module/device.h"
#include "tests/unit/cuda/library_operands.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;

namespace {

// A valid convolution of 2 images of 3 channels, 3 x 3 filtered to 4 channels, which tests make invalid.
struct Convolution {
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t operation = nullptr;
  DeviceContext& device = context_of(0);
  DeviceTensor x_memory{device, random_tensor({2, 3, 5, 6}, 1, DType::float32)};
  DeviceTensor w_memory{device, random_tensor({4, 3, 3, 3}, 2, DType::float32)};
  DeviceTensor y_memory{device, {2, 4, 5, 6}, DType::float32};
  Scratch workspace{device.memory, 16384};

  Convolution() {
    cudnnCreate(&handle);
    cudnnSetStream(handle, device.stream());
    cudnnCreateTensorDescriptor(&x);
    cudnnCreateTensorDescriptor(&y);
    cudnnCreateFilterDescriptor(&w);
    cudnnCreateConvolutionDescriptor(&operation);
    cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 5, 6);
    cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 5, 6);
    cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 3, 3);
    describe(CUDNN_DATA_FLOAT);
  }
  ~Convolution() {
    cudnnDestroyConvolutionDescriptor(operation);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyTensorDescriptor(y);
    cudnnDestroyTensorDescriptor(x);
    cudnnDestroy(handle);
  }

  void describe(cudnnDataType_t computed) {
    cudnnSetConvolution2dDescriptor(operation, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, computed);
  }
  cudnnStatus_t run(cudnnConvolutionFwdAlgo_t algorithm, std::size_t workspace_bytes) {
    const float alpha = 1, beta = 0;
    return cudnnConvolutionForward(handle, &alpha, x, x_memory.view().data, w, w_memory.view().data, operation,
                                   algorithm, workspace.data(), workspace_bytes, &beta, y, y_memory.view().data);
  }
  // Returns the status that all functions give for the convolution as it is now.
  cudnnStatus_t status() {
    std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> found{};
    int count = 0;
    std::size_t bytes = 0;
    const cudnnStatus_t chosen = cudnnGetConvolutionForwardAlgorithm_v7(
        handle, x, w, operation, y, static_cast<int>(found.size()), &count, found.data());
    CHECK(chosen == cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, operation, y,
                                                            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, &bytes));
    CHECK(chosen == run(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0));
    return chosen;
  }
};

}  // namespace

TEST_CASE("the emulated cuDNN takes a convolution that is right") {
  Convolution convolution;
  CHECK(convolution.status() == CUDNN_STATUS_SUCCESS);
}

TEST_CASE("the emulated cuDNN refuses images that do not fit") {
  Convolution convolution;
  cudnnSetTensor4dDescriptor(convolution.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 4, 6);
  CHECK(convolution.status() == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  cudnnSetTensor4dDescriptor(convolution.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 5, 6);
  cudnnSetConvolutionGroupCount(convolution.operation, 2);
  CHECK(convolution.status() == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
}

TEST_CASE("the emulated cuDNN refuses types that do not go together") {
  Convolution convolution;
  convolution.describe(CUDNN_DATA_DOUBLE);
  CHECK(convolution.status() == CUDNN_STATUS_BAD_PARAM);
  convolution.describe(CUDNN_DATA_FLOAT);
  cudnnSetFilter4dDescriptor(convolution.w, CUDNN_DATA_HALF, CUDNN_TENSOR_NCHW, 4, 3, 3, 3);
  CHECK(convolution.status() == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("the emulated cuDNN refuses sizes that are none, and what is too large") {
  Convolution convolution;
  const auto set = [&](int n, int c, int h, int w) {
    return cudnnSetTensor4dDescriptor(convolution.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w);
  };
  CHECK(set(0, 3, 5, 6) == CUDNN_STATUS_BAD_PARAM);
  CHECK(set(1 << 10, 1 << 10, 1 << 10, 2) == CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_CASE("the emulated cuDNN has algorithms for some shapes alone, and each wants its workspace") {
  Convolution convolution;
  CHECK(convolution.run(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, 16384) == CUDNN_STATUS_SUCCESS);
  CHECK(convolution.run(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, 8) ==
        CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
  CHECK(convolution.run(CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, 16384) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(convolution.run(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, 16384) == CUDNN_STATUS_SUCCESS);
  cudnnSetConvolution2dDescriptor(convolution.operation, 2, 2, 1, 1, 2, 2, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  CHECK(convolution.run(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, 16384) == CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_CASE("the emulated cuDNN's atomic algorithms add in another order each time") {
  Convolution convolution;
  const float alpha = 1, beta = 0;
  const auto gradient = [&] {
    const DeviceTensor x_grad(convolution.device, {2, 3, 5, 6}, DType::float32);
    CHECK(cudnnConvolutionBackwardData(
              convolution.handle, &alpha, convolution.w, convolution.w_memory.view().data, convolution.y,
              DeviceTensor(convolution.device, random_tensor({2, 4, 5, 6}, 3, DType::float32)).view().data,
              convolution.operation, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, nullptr, 0, &beta, convolution.x,
              x_grad.view().data) == CUDNN_STATUS_SUCCESS);
    return x_grad.to_host();
  };
  const Tensor first = gradient(), second = gradient();
  CHECK(!same_bits(first, second));
  CHECK(difference(first, second) < tolerance(DType::float32));
}
