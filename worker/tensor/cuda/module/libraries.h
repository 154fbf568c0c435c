#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>

#include "worker/tensor/bounded_cache.h"
#include "worker/tensor/cuda/module/convolution_plan.h"
#include "worker/tensor/cuda/module/product_plan.h"

namespace ddprun::cuda {

// cuBLASLt for a device, and the ways in which it computes the products that were wanted so far.
class ProductLibrary {
 public:
  explicit ProductLibrary(const LibraryCall& call);
  cublasLtHandle_t handle() const { return handle_.get(); }
  ProductPlan& plan(const Product& product, const EpilogueMemory& memory, const LibraryCall& call);

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
  BoundedCache<Product, ProductPlan> plans_;
};

// cuDNN for a device, whose calls are queued on the compute stream, and how it computes the convolutions so far.
class ConvolutionLibrary {
 public:
  explicit ConvolutionLibrary(const LibraryCall& call);
  cudnnHandle_t handle() const { return handle_.get(); }
  const ConvolutionPlan& plan(const Convolution& convolution, const LibraryCall& call);

 private:
  struct Destroy {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, Destroy> handle_;
  BoundedCache<Convolution, ConvolutionPlan> plans_;
};

// Each is made when it is first used: opening cuDNN alone takes a second, and a model without images needs none. One of
// another major version than the module was built with is refused then.
struct Libraries {
  std::unique_ptr<ProductLibrary> products;
  std::unique_ptr<ConvolutionLibrary> convolutions;
};

ProductLibrary& product_library(DeviceContext& device, const LibraryCall& call);
ConvolutionLibrary& convolution_library(DeviceContext& device, const LibraryCall& call);

}  // namespace ddprun::cuda
