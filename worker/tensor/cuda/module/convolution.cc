#include "worker/tensor/cuda/module/convolution.h"

#include "common/error.h"
#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"
#include "worker/tensor/cuda/module/libraries.h"
#include "worker/tensor/cuda/module/memory.h"
#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/widen.h"
#include "worker/tensor/cuda/module/zero.h"

namespace ddprun::cuda {
namespace {

using kernels::ConvGeometry;
using Pass = Convolution::Pass;

// The factors of a result and of what is there already: double for float64, else float.
class Factors {
 public:
  Factors(DType dtype, bool accumulate)
      : wide_(dtype == DType::float64), wide_beta_(accumulate ? 1 : 0), beta_(accumulate ? 1 : 0) {}
  const void* alpha() const { return wide_ ? static_cast<const void*>(&wide_alpha_) : &alpha_; }
  const void* beta() const { return wide_ ? static_cast<const void*>(&wide_beta_) : &beta_; }

 private:
  bool wide_;
  double wide_alpha_ = 1, wide_beta_;
  float alpha_ = 1, beta_;
};

void check_types(const LibraryCall& call, DType other) {
  if (!is_floating(call.dtype) || other != call.dtype)
    throw make_error(Errc::unsupported, "{} of {} and {} is not supported on {}", call.operation, name_of(call.dtype),
                     name_of(other), call.device.name());
  check_architecture(call);
}

// weight_grad has the type of x and grad.
void add_weight_gradient(DeviceContext& device, const ConvGeometry& geometry, const View& x, const View& grad,
                         const View& weight_grad, bool accumulate, const LibraryCall& call) {
  ConvolutionLibrary& library = convolution_library(device, call);
  const ConvolutionPlan& plan = library.plan({Pass::weight_gradient, geometry, x.dtype, device.allow_tf32}, call);
  const Factors factors(x.dtype, accumulate);
  const Scratch workspace(device.memory, plan.workspace_bytes());
  check(cudnnConvolutionBackwardFilter(library.handle(), factors.alpha(), plan.x(), x.data, plan.y(), grad.data,
                                       plan.operation(), plan.algorithm<cudnnConvolutionBwdFilterAlgo_t>(),
                                       workspace.data(), workspace.bytes(), factors.beta(), plan.weight(),
                                       weight_grad.data),
        "cudnnConvolutionBackwardFilter", call);
  ++device.launches;
}

}  // namespace

void conv2d(DeviceContext& device, const ConvGeometry& geometry, const View& x, const View& weight, const View& bias,
            const View& out) {
  const LibraryCall call{device, "conv2d", x.dtype};
  check_types(call, weight.dtype);
  if (element_count(out) == 0) return;
  ConvolutionLibrary& library = convolution_library(device, call);
  const ConvolutionPlan& plan = library.plan({Pass::forward, geometry, x.dtype, device.allow_tf32}, call);
  const Factors factors(x.dtype, false);
  {
    const Scratch workspace(device.memory, plan.workspace_bytes());
    check(cudnnConvolutionForward(library.handle(), factors.alpha(), plan.x(), x.data, plan.weight(), weight.data,
                                  plan.operation(), plan.algorithm<cudnnConvolutionFwdAlgo_t>(), workspace.data(),
                                  workspace.bytes(), factors.beta(), plan.y(), out.data),
          "cudnnConvolutionForward", call);
    ++device.launches;
  }
  if (bias.data != nullptr) add_bias(device, out, bias, geometry.batch, geometry.out_h * geometry.out_w);
}

void conv2d_backward_input(DeviceContext& device, const ConvGeometry& geometry, const View& grad, const View& weight,
                           const View& out) {
  const LibraryCall call{device, "conv2d_backward_input", grad.dtype};
  check_types(call, weight.dtype);
  if (element_count(out) == 0) return;
  ConvolutionLibrary& library = convolution_library(device, call);
  const ConvolutionPlan& plan = library.plan({Pass::input_gradient, geometry, grad.dtype, device.allow_tf32}, call);
  const Factors factors(grad.dtype, false);
  const Scratch workspace(device.memory, plan.workspace_bytes());
  check(cudnnConvolutionBackwardData(library.handle(), factors.alpha(), plan.weight(), weight.data, plan.y(), grad.data,
                                     plan.operation(), plan.algorithm<cudnnConvolutionBwdDataAlgo_t>(),
                                     workspace.data(), workspace.bytes(), factors.beta(), plan.x(), out.data),
        "cudnnConvolutionBackwardData", call);
  ++device.launches;
}

void conv2d_backward_weight(DeviceContext& device, const ConvGeometry& geometry, const View& x, const View& grad,
                            const View& weight_grad, bool accumulate) {
  const LibraryCall call{device, "conv2d_backward_weight", x.dtype};
  check_types(call, grad.dtype);
  if (element_count(x) == 0) {
    if (!accumulate) zero(device, weight_grad);
    return;
  }
  if (weight_grad.dtype == x.dtype)
    return add_weight_gradient(device, geometry, x, grad, weight_grad, accumulate, call);
  // cuDNN sums in float32 and has no wider result of 16 bits: it is rounded once, before it is added.
  const Scratch narrow(device.memory, static_cast<std::size_t>(element_count(weight_grad)) * size_of(x.dtype));
  View rounded = weight_grad;
  rounded.data = narrow.data();
  rounded.dtype = x.dtype;
  add_weight_gradient(device, geometry, x, grad, rounded, false, call);
  widen(device, rounded, weight_grad, accumulate);
}

void add_convolutions(DeviceApi& api) {
  api.conv2d = guarded<conv2d>;
  api.conv2d_backward_input = guarded<conv2d_backward_input>;
  api.conv2d_backward_weight = guarded<conv2d_backward_weight>;
}

}  // namespace ddprun::cuda
