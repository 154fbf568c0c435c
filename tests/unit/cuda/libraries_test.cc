#include "worker/tensor/cuda/module/libraries.h"

#include <string>
#include <utility>

#include "worker/cuda/emulator/machine.h"
#include "worker/cuda/library_version.h"
#include "worker/tensor/cuda/module/batch_norm.h"
#include "worker/tensor/cuda/module/convolution.h"
#include "worker/tensor/cuda/module/pooling.h"
#include "worker/tensor/cuda/module/product.h"
#include "tests/unit/cuda/library_operands.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;
using kernels::ConvGeometry;

namespace {

constexpr ConvGeometry geometry{.batch = 2,
                                .in_channels = 4,
                                .height = 6,
                                .width = 6,
                                .out_channels = 4,
                                .kernel_h = 3,
                                .kernel_w = 3,
                                .stride = 1,
                                .padding = 1,
                                .out_h = 6,
                                .out_w = 6,
                                .groups = 2};

// Runs every operation once, each in the way in which it makes the most calls. Returns the successive results.
std::vector<Tensor> run_all(DeviceContext& device) {
  const DType narrow = DType::bfloat16;
  const DeviceTensor image(device, random_tensor({2, 4, 6, 6}, 1, narrow)), bias(device, random_tensor({4}, 2, narrow));
  const DeviceTensor weight(device, random_tensor({4, 2, 3, 3}, 3, narrow)), y(device, {2, 4, 6, 6}, narrow);
  const DeviceTensor x_grad(device, {2, 4, 6, 6}, narrow);
  const DeviceTensor weight_grad(device, random_tensor({4, 2, 3, 3}, 4, DType::float32));
  conv2d(device, geometry, image.view(), weight.view(), bias.view(), y.view());
  conv2d_backward_input(device, geometry, image.view(), weight.view(), x_grad.view());
  conv2d_backward_weight(device, geometry, image.view(), image.view(), weight_grad.view(), true);

  const DeviceTensor a(device, random_tensor({3, 4, 5}, 5, DType::float64)), product(device, {3, 4, 4}, DType::float64);
  batched_matmul(device, a.view(), a.view(), product.view(), {.transpose_b = true});
  const DeviceTensor b(device, random_tensor({6, 4}, 6, narrow)), sum(device, {6, 6}, narrow);
  const DeviceTensor added(device, random_tensor({6}, 7, narrow)), nothing(device, {6, 0}, narrow);
  matmul(device, added.view(), b.view(), b.view(), sum.view(), {.transpose_b = true});
  const DeviceTensor zeros(device, {6, 6}, narrow);
  matmul(device, {}, nothing.view(), nothing.view(), zeros.view(), {.transpose_b = true});

  const DeviceTensor mean(device, {4}, DType::float32), inverse(device, {4}, DType::float32);
  const DeviceTensor variance(device, {4}, DType::float32), bias_grad(device, {4}, DType::float32);
  const DeviceTensor scale_grad(device, {4}, DType::float32), normal(device, {2, 4, 36}, narrow);
  batch_statistics(device, image.view(), 2, 36, 1e-5, mean.view(), inverse.view(), variance.view());
  batch_norm_backward(device, image.view(), image.view(), 2, 36, mean.view(), inverse.view(), variance.view(), true,
                      normal.view(), scale_grad.view(), bias_grad.view());
  std::vector<Tensor> results;
  for (const DeviceTensor* result :
       {&y, &x_grad, &weight_grad, &product, &sum, &zeros, &mean, &inverse, &normal, &scale_grad, &bias_grad})
    results.push_back(result->to_host());
  return results;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
}

}  // namespace

TEST_CASE("versions of libraries are read from their numbers of both kinds") {
  CHECK(library_version(22809) == VersionNumber{2, 28, 9});
  CHECK(library_version(130100) == VersionNumber{13, 1, 0});
  CHECK(library_version(8907) == VersionNumber{8, 9, 7});
  CHECK(library_version(2804) == VersionNumber{2, 8, 4});
}

TEST_CASE("a library has to be of the major version that was built with, or new enough") {
  const auto loaded = [](const VersionNumber& found) {
    return LoadedLibrary{"cuDNN", found, reinterpret_cast<const void*>(&cudnnGetVersion)};
  };
  check_same_major(loaded({9, 1, 0}), {9, 19, 0});
  check_same_major(loaded({9, 30, 2}), {9, 19, 0});
  CHECK_THROWS_WITH(check_same_major(loaded({8, 9, 7}), {9, 19, 0}),
                    Catch::StartsWith("cuDNN 8.9.7 was loaded from ") && Catch::Contains("/cuda_libraries_test") &&
                        Catch::Contains(", 9.x is needed: the CUDA module was built with 9.19.0; LD_LIBRARY_PATH"));
  CHECK_THROWS_AS(check_same_major(loaded({10, 0, 0}), {9, 19, 0}), Error);
  check_at_least(loaded({2, 19, 3}), {2, 19, 3});
  check_at_least(loaded({2, 28, 0}), {2, 19, 3});
  CHECK_THROWS_WITH(check_at_least(loaded({2, 18, 9}), {2, 19, 3}), Catch::Contains(", 2.19.3 or newer is needed; "));
}

TEST_CASE("each call that fails is one error that names it, and nothing is lost or left behind") {
  DeviceContext& device = context_of(0);
  auto& calls = emulator::Machine::get().calls();
  const std::vector<Tensor> expected = run_all(device);
  const std::string function = GENERATE(
      "cublasLtCreate", "cublasLtMatmulDescInit", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutInit",
      "cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulPreferenceInit", "cublasLtMatmulPreferenceSetAttribute",
      "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul", "cudnnCreate", "cudnnSetStream",
      "cudnnCreateTensorDescriptor", "cudnnSetTensor4dDescriptor", "cudnnCreateFilterDescriptor",
      "cudnnSetFilter4dDescriptor", "cudnnCreateConvolutionDescriptor", "cudnnSetConvolution2dDescriptor",
      "cudnnSetConvolutionGroupCount", "cudnnSetConvolutionMathType", "cudnnGetConvolutionForwardAlgorithm_v7",
      "cudnnGetConvolutionForwardWorkspaceSize", "cudnnConvolutionForward",
      "cudnnGetConvolutionBackwardDataAlgorithm_v7", "cudnnGetConvolutionBackwardDataWorkspaceSize",
      "cudnnConvolutionBackwardData", "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
      "cudnnGetConvolutionBackwardFilterWorkspaceSize", "cudnnConvolutionBackwardFilter");
  const std::size_t allocated = device.memory.facts().allocated;
  int failures = 0;
  for (int n = 1;; ++n) {
    device.libraries.reset();
    calls.fail(function + ":" + std::to_string(n));
    std::string text;
    try {
      run_all(device);
    } catch (const Error& error) {
      text = error.what();
    }
    if (!calls.has_failed()) {
      CHECK(text.empty());
      break;
    }
    ++failures;
    CAPTURE(function, n, text);
    CHECK(text.find(" failed on cuda:0: " + function + " returned ") != std::string::npos);
    CHECK(device.memory.facts().allocated == allocated);
    device.libraries.reset();
    for (const std::string kind : {"Tensor", "Filter", "Convolution"}) {
      const std::string create = "cudnnCreate" + kind + "Descriptor";
      const std::uint64_t made = calls.count(create) - (function == create ? 1 : 0);
      CHECK(made == calls.count("cudnnDestroy" + kind + "Descriptor"));
    }
    CHECK(calls.count("cublasLtCreate") - (function == "cublasLtCreate" ? 1 : 0) == calls.count("cublasLtDestroy"));
    CHECK(calls.count("cudnnCreate") - (function == "cudnnCreate" ? 1 : 0) == calls.count("cudnnDestroy"));
    calls.fail("");
    CHECK(same(run_all(device), expected));
  }
  calls.fail("");
  CHECK(failures > 0);
}

TEST_CASE("a library's status that has a usual cause names it") {
  DeviceContext& device = context_of(0);
  auto& calls = emulator::Machine::get().calls();
  for (const auto& [call, cause] : {std::pair("cudnnCreate:1:1002", "its libraries are of different versions"),
                                    std::pair("cudnnCreate:1:1008", "a library of cuDNN is missing"),
                                    std::pair("cudnnCreate:1:3005", "cuDNN needs a newer driver"),
                                    std::pair("cudnnCreate:1:3006", "cuDNN is for another CUDA runtime"),
                                    std::pair("cudnnConvolutionForward:1:4004", "has not enough memory"),
                                    std::pair("cublasLtCreate:1:1", "cuBLASLt could not begin"),
                                    std::pair("cublasLtMatmul:1:3", "has not enough memory")}) {
    INFO(call);
    device.libraries.reset();
    calls.fail(call);
    const Error error = error_of([&] { run_all(device); });
    calls.fail("");
    CHECK_THAT(error.what(), Catch::Contains(cause));
  }
}

TEST_CASE("a library's call after a kernel's fault reports the fault") {
  DeviceContext& device = context_of(0);
  const LibraryCall call{device, "matmul", DType::float32};
  emulator::Machine::get().device(0).fault = cudaErrorIllegalAddress;
  const Error product = error_of([&] { check(CUBLAS_STATUS_EXECUTION_FAILED, "cublasLtMatmul", call); });
  const Error convolution = error_of([&] { check(CUDNN_STATUS_EXECUTION_FAILED, "cudnnConvolutionForward", call); });
  emulator::Machine::get().device(0).fault = cudaSuccess;
  CHECK_THAT(product.what(), Catch::StartsWith("cublasLtMatmul failed on cuda:0: an illegal memory access"));
  CHECK_THAT(convolution.what(), Catch::StartsWith("cudnnConvolutionForward failed on cuda:0: an illegal memory"));
}

TEST_CASE("a device before sm_80 refuses bfloat16, and nothing else") {
  DeviceContext& device = context_of(0);
  const int major = std::exchange(device.major, 7), minor = std::exchange(device.minor, 5);
  const DeviceTensor a(device, random_tensor({4, 4}, 1, DType::bfloat16)), out(device, {4, 4}, DType::bfloat16);
  const Error product = error_of([&] { matmul(device, {}, a.view(), a.view(), out.view(), {}); });
  const DeviceTensor image(device, {2, 4, 6, 6}, DType::bfloat16), weight(device, {4, 2, 3, 3}, DType::bfloat16);
  const Error convolution = error_of([&] { conv2d(device, geometry, image.view(), weight.view(), {}, image.view()); });
  const DeviceTensor half(device, random_tensor({4, 4}, 1, DType::float16)), half_out(device, {4, 4}, DType::float16);
  CHECK_NOTHROW(matmul(device, {}, half.view(), half.view(), half_out.view(), {}));
  device.major = major;
  device.minor = minor;
  CHECK(product.code() == Errc::unsupported);
  CHECK(std::string(product.what()) ==
        "matmul of bfloat16 is not supported on cuda:0: it needs compute capability 8.0, the device has 7.5");
  CHECK(std::string(convolution.what()) ==
        "conv2d of bfloat16 is not supported on cuda:0: it needs compute capability 8.0, the device has 7.5");
}

TEST_CASE("no operation waits for the device") {
  DeviceContext& device = context_of(0);
  run_all(device);
  const DeviceTensor a(device, random_tensor({8, 8}, 1, DType::float32)), out(device, {8, 8}, DType::float32);
  auto& calls = emulator::Machine::get().calls();
  calls.fail("");
  const std::uint64_t launches = device.launches;
  matmul(device, {}, a.view(), a.view(), out.view(), {});
  CHECK(device.launches == launches + 1);
  for (const char* function : {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"})
    CHECK(calls.count(function) == 0);
}
