#include "ddprun/worker/tensor/cuda/module/libraries.h"

namespace ddprun::cuda {
namespace {

Libraries& libraries_of(DeviceContext& device) {
  if (device.libraries == nullptr) device.libraries = {new Libraries, [](Libraries* libraries) { delete libraries; }};
  return *device.libraries;
}

}  // namespace

ProductLibrary::ProductLibrary(const LibraryCall& call) {
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
