#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "worker/tensor/cuda/module/library_call.h"

namespace ddprun::cuda {

// A convolution, or one of its gradients: all that cuDNN's choice of an algorithm depends on.
struct Convolution {
  enum class Pass : std::uint8_t { forward, input_gradient, weight_gradient };
  Pass pass;
  kernels::ConvGeometry geometry;
  DType dtype;
  bool tf32;
  friend auto operator<=>(const Convolution&, const Convolution&) = default;
};

template <auto destroy>
struct DestroyBy {
  template <class Descriptor>
  void operator()(Descriptor* descriptor) const {
    destroy(descriptor);
  }
};
using TensorDescriptor =
    std::unique_ptr<std::remove_pointer_t<cudnnTensorDescriptor_t>, DestroyBy<cudnnDestroyTensorDescriptor>>;
using FilterDescriptor =
    std::unique_ptr<std::remove_pointer_t<cudnnFilterDescriptor_t>, DestroyBy<cudnnDestroyFilterDescriptor>>;
using ConvolutionDescriptor =
    std::unique_ptr<std::remove_pointer_t<cudnnConvolutionDescriptor_t>, DestroyBy<cudnnDestroyConvolutionDescriptor>>;

// The way in which cuDNN computes it. This is its older interface, deprecated in version 9 and complete there: its
// graphs would be built from ten times as many calls, and have no engine for some shapes, above all in float64.
class ConvolutionPlan {
 public:
  ConvolutionPlan(cudnnHandle_t library, const Convolution& convolution, const LibraryCall& call);

  cudnnTensorDescriptor_t x() const { return x_.get(); }
  cudnnTensorDescriptor_t y() const { return y_.get(); }
  cudnnFilterDescriptor_t weight() const { return weight_.get(); }
  cudnnConvolutionDescriptor_t operation() const { return operation_.get(); }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // Returns the algorithm of the pass.
  template <class Algorithm>
  Algorithm algorithm() const {
    return static_cast<Algorithm>(algorithm_);
  }

 private:
  TensorDescriptor x_, y_;
  FilterDescriptor weight_;
  ConvolutionDescriptor operation_;
  int algorithm_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace ddprun::cuda
