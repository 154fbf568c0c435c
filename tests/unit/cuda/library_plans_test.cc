// The module's internal plans of products and convolutions: the arithmetic and the algorithm.
#include "worker/cuda/emulator/machine.h"
#include "worker/tensor/cuda/module/convolution.h"
#include "worker/tensor/cuda/module/device.h"
#include "worker/tensor/cuda/module/product.h"
#include "tests/unit/cuda/convolution_shapes.h"
#include "tests/unit/cuda/library_operands.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;
using kernels::ConvGeometry;

namespace {

const kernels::Table& cpu() {
  return kernels::table(Device{});
}

}  // namespace

TEST_CASE("float32 is multiplied in TF32 where the device's context allows it, and only there") {
  DeviceContext& device = context_of(0);
  const Tensor a = random_tensor({8, 64}, 1, DType::float32), b = random_tensor({64, 8}, 2, DType::float32);
  const DeviceTensor x(device, a), y(device, b), exact(device, {8, 8}, DType::float32),
      rounded(device, {8, 8}, DType::float32);
  matmul(device, {}, x.view(), y.view(), exact.view(), {});
  device.allow_tf32 = true;
  matmul(device, {}, x.view(), y.view(), rounded.view(), {});
  device.allow_tf32 = false;
  Tensor expected = Tensor::zeros({8, 8}, DType::float64);
  cpu().matmul(wide(a), wide(b), expected, {});
  CHECK(difference(exact, expected) < tolerance(DType::float32));
  CHECK(difference(rounded, expected) > tolerance(DType::float32));
  CHECK(difference(rounded, expected) < 1e-3);
}

TEST_CASE("an algorithm is looked for once for each product") {
  DeviceContext& device = context_of(0);
  auto& machine = emulator::Machine::get();
  const DeviceTensor a(device, random_tensor({17, 19}, 1, DType::float32));
  const DeviceTensor b(device, random_tensor({19, 23}, 2, DType::float32)), out(device, {17, 23}, DType::float32);
  matmul(device, {}, a.view(), b.view(), out.view(), {});
  const std::uint64_t launches = device.launches, synchronizations = device.synchronizations;
  machine.calls().fail("cublasLtMatmulAlgoGetHeuristic");
  CHECK_NOTHROW(matmul(device, {}, a.view(), b.view(), out.view(), {}));
  CHECK(!machine.calls().has_failed());
  machine.calls().fail("");
  CHECK(device.launches == launches + 1);
  CHECK(device.synchronizations == synchronizations);
}

TEST_CASE("convolutions of float32 use TF32 where the device's context allows it, and only there") {
  DeviceContext& device = context_of(0);
  const ConvGeometry g = geometry_of({.kernel = 3, .padding = 1});
  const Tensor x = random_tensor(image(g), 1, DType::float32), w = random_tensor(weight(g), 2, DType::float32);
  const DeviceTensor device_x(device, x), device_w(device, w), y(device, result(g), DType::float32);
  device.allow_tf32 = true;
  conv2d(device, g, device_x.view(), device_w.view(), {}, y.view());
  device.allow_tf32 = false;
  const double rounded = difference(y, cpu().conv2d(g, wide(x), wide(w), Tensor()));
  CHECK(rounded > tolerance(DType::float32));
  CHECK(rounded < 1e-3);
}

TEST_CASE("an algorithm is looked for once for each convolution") {
  DeviceContext& device = context_of(0);
  auto& machine = emulator::Machine::get();
  const ConvGeometry g = geometry_of({.kernel = 4});
  const DeviceTensor x(device, random_tensor(image(g), 1, DType::float32)), y(device, result(g), DType::float32);
  const DeviceTensor w(device, random_tensor(weight(g), 1, DType::float32));
  conv2d(device, g, x.view(), w.view(), {}, y.view());
  machine.calls().fail("cudnnGetConvolutionForwardAlgorithm_v7");
  CHECK_NOTHROW(conv2d(device, g, x.view(), w.view(), {}, y.view()));
  CHECK(!machine.calls().has_failed());
  machine.calls().fail("");
}
