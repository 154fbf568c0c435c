#include "worker/tensor/cuda/module/libraries.h"

#include "worker/cuda/library_version.h"

namespace ddprun::cuda {
namespace {

Libraries& libraries_of(DeviceContext& device) {
  if (device.libraries == nullptr) device.libraries = {new Libraries, [](Libraries* libraries) { delete libraries; }};
  return *device.libraries;
}

// The name of its file has the major version, too, but a link or LD_PRELOAD passes for any.
void check_cublaslt() {
  check_same_major({"cuBLASLt", library_version(static_cast<int>(cublasLtGetVersion())),
                    reinterpret_cast<const void*>(&cublasLtGetVersion)},
                   library_version(CUBLAS_VERSION));
}

void check_cudnn() {
  check_same_major(
      {"cuDNN", library_version(static_cast<int>(cudnnGetVersion())), reinterpret_cast<const void*>(&cudnnGetVersion)},
      library_version(CUDNN_VERSION));
}

}  // namespace

ProductLibrary::ProductLibrary(const LibraryCall& call) {
  check_cublaslt();
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate", call);
  handle_.reset(handle);
}

ProductPlan& ProductLibrary::plan(const Product& product, const EpilogueMemory& memory, const LibraryCall& call) {
  ProductPlan& plan = plans_.get(product, [&] { return make_plan(handle(), product, memory, call); });
  set_memory(plan, product, memory, call);
  return plan;
}

ConvolutionLibrary::ConvolutionLibrary(const LibraryCall& call) {
  check_cudnn();
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate", call);
  handle_.reset(handle);
  check(cudnnSetStream(handle, call.device.stream()), "cudnnSetStream", call);
}

const ConvolutionPlan& ConvolutionLibrary::plan(const Convolution& convolution, const LibraryCall& call) {
  return plans_.get(convolution, [&] { return ConvolutionPlan(handle(), convolution, call); });
}

ProductLibrary& product_library(DeviceContext& device, const LibraryCall& call) {
  Libraries& libraries = libraries_of(device);
  if (libraries.products == nullptr) libraries.products = std::make_unique<ProductLibrary>(call);
  return *libraries.products;
}

ConvolutionLibrary& convolution_library(DeviceContext& device, const LibraryCall& call) {
  Libraries& libraries = libraries_of(device);
  if (libraries.convolutions == nullptr) libraries.convolutions = std::make_unique<ConvolutionLibrary>(call);
  return *libraries.convolutions;
}

}  // namespace ddprun::cuda
