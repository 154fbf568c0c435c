// Products with an epilogue, or with the kernels that take its place, against the CPU's in float64.
#include <optional>
#include <utility>
#include <vector>

#include "worker/tensor/cuda/module/device.h"
#include "worker/tensor/cuda/module/product.h"
#include "tests/unit/cuda/library_operands.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;
using kernels::MatmulFusion;
using kernels::MatmulOptions;

namespace {

// The types of the factors and of the result.
struct Types {
  DType in, out;
  bool is_narrow() const { return out == DType::bfloat16 || out == DType::float16; }
};
const std::vector<Types> all_types{{DType::float32, DType::float32},   {DType::float64, DType::float64},
                                   {DType::bfloat16, DType::bfloat16}, {DType::float16, DType::float16},
                                   {DType::bfloat16, DType::float32},  {DType::float16, DType::float32}};

constexpr std::int64_t m = 5, n = 16, k = 9;

// Returns the number of kernels and library calls of a function.
template <class Function>
std::uint64_t launches_of(DeviceContext& device, const Function& function) {
  const std::uint64_t before = device.launches;
  function();
  return device.launches - before;
}

// While it exists, the device is one before sm_90.
class OlderDevice {
 public:
  explicit OlderDevice(DeviceContext& device) : device_(device), major_(std::exchange(device.major, 8)) {}
  ~OlderDevice() { device_.major = major_; }
  OlderDevice(const OlderDevice&) = delete;
  OlderDevice& operator=(const OlderDevice&) = delete;

 private:
  DeviceContext& device_;
  int major_;
};

Tensor expected_product(const Tensor& a, const Tensor& b, MatmulFusion fusion, MatmulOptions options,
                        const Tensor& before = {}) {
  Tensor out = before.defined() ? wide(before).clone() : Tensor::zeros({m, n}, DType::float64);
  fusion.bias = wide(fusion.bias);
  fusion.addend = wide(fusion.addend);
  fusion.gelu_gradient = wide(fusion.gelu_gradient);
  kernels::of(out).fused_matmul(wide(a), wide(b), out, fusion, options);
  return out;
}

}  // namespace

TEST_CASE("a product is added to a matrix and a bias, which stay as they are") {
  DeviceContext& device = context_of(0);
  for (const Types& types : all_types) {
    for (const bool with_bias : {false, true}) {
      CAPTURE(name_of(types.in), name_of(types.out), with_bias);
      const Tensor a = random_tensor({m, k}, 1, types.in), b = random_tensor({k, n}, 2, types.in);
      const Tensor addend = random_tensor({m, n}, 3, types.out);
      const Tensor bias = with_bias ? random_tensor({n}, 4, types.out) : Tensor();
      const DeviceTensor x(device, a), y(device, b), z(device, addend), out(device, {m, n}, types.out);
      const DeviceTensor added(device, with_bias ? bias : addend);
      ProductFusion fusion;
      fusion.addend = z.view();
      if (with_bias) fusion.bias = added.view();
      const auto launches =
          launches_of(device, [&] { fused_matmul(device, x.view(), y.view(), out.view(), fusion, {}); });
      CHECK(launches == (with_bias && types.out == DType::float64 ? 2U : 1U));
      CHECK(difference(out, expected_product(a, b, {.bias = bias, .addend = addend}, {})) < tolerance(types.out));
      CHECK(same_bits(z.to_host(), addend));
    }
  }
}

TEST_CASE("a product has its GELU in the epilogue where the device and the library have it") {
  DeviceContext& device = context_of(0);
  for (const Types& types : all_types) {
    for (const bool with_bias : {false, true}) {
      for (const bool older : {false, true}) {
        CAPTURE(name_of(types.in), name_of(types.out), with_bias, older);
        const Tensor a = random_tensor({m, k}, 1, types.in), b = random_tensor({k, n}, 2, types.in);
        const Tensor bias = with_bias ? random_tensor({n}, 4, types.out) : Tensor();
        const DeviceTensor x(device, a), y(device, b), input(device, {m, n}, types.out), out(device, {m, n}, types.out);
        const DeviceTensor added(device, with_bias ? bias : a);
        ProductFusion fusion;
        fusion.gelu_input = input.view();
        if (with_bias) fusion.bias = added.view();
        std::uint64_t launches = 0;
        {
          std::optional<OlderDevice> before_sm_90;
          if (older) before_sm_90.emplace(device);
          launches = launches_of(device, [&] { fused_matmul(device, x.view(), y.view(), out.view(), fusion, {}); });
        }
        const bool in_epilogue = types.is_narrow() && !older;
        CHECK(launches == (in_epilogue ? 1U : with_bias && types.out == DType::float64 ? 3U : 2U));
        Tensor expected_input = Tensor::empty({m, n}, DType::float64);
        const Tensor expected = expected_product(a, b, {.bias = bias, .gelu_input = expected_input}, {});
        CHECK(difference(input, expected_input) < tolerance(types.out));
        CHECK(difference(out, expected) < 2 * tolerance(types.out));
      }
    }
  }
}

TEST_CASE("a product is multiplied by the derivative of the GELU") {
  DeviceContext& device = context_of(0);
  for (const Types& types : all_types) {
    for (const bool older : {false, true}) {
      CAPTURE(name_of(types.in), name_of(types.out), older);
      const Tensor a = random_tensor({m, k}, 1, types.in), b = random_tensor({n, k}, 2, types.in);
      const Tensor at = random_tensor({m, n}, 3, types.out);
      const DeviceTensor x(device, a), y(device, b), values(device, at), out(device, {m, n}, types.out);
      ProductFusion fusion;
      fusion.gelu_gradient = values.view();
      const MatmulOptions options{.transpose_b = true};
      std::uint64_t launches = 0;
      {
        std::optional<OlderDevice> before_sm_90;
        if (older) before_sm_90.emplace(device);
        launches = launches_of(device, [&] { fused_matmul(device, x.view(), y.view(), out.view(), fusion, options); });
      }
      CHECK(launches == (types.is_narrow() && !older ? 1U : 2U));
      CHECK(difference(out, expected_product(a, b, {.gelu_gradient = at}, options)) < 2 * tolerance(types.out));
    }
  }
}

TEST_CASE("a product gives the sums of a factor's columns, in its epilogue where they are only written") {
  DeviceContext& device = context_of(0);
  for (const Types& types : all_types) {
    for (const bool of_a : {false, true}) {
      for (const bool accumulate : {false, true}) {
        CAPTURE(name_of(types.in), name_of(types.out), of_a, accumulate);
        const Tensor a = random_tensor({k, m}, 1, types.in), b = random_tensor({k, n}, 2, types.in);
        const Tensor before = random_tensor({m, n}, 3, types.out),
                     sums_before = random_tensor({of_a ? m : n}, 4, types.out);
        const DeviceTensor x(device, a), y(device, b), out(device, before), sums(device, sums_before);
        ProductFusion fusion;
        fusion.sums = sums.view();
        fusion.sums_of_a = of_a;
        fusion.accumulate_sums = accumulate;
        const MatmulOptions options{.transpose_a = true, .accumulate = accumulate};
        const auto launches =
            launches_of(device, [&] { fused_matmul(device, x.view(), y.view(), out.view(), fusion, options); });
        CHECK(launches == (accumulate || types.out == DType::float64 ? 2U : 1U));
        const Tensor expected_sums = wide(sums_before).clone();
        const MatmulFusion expected{.sums = expected_sums, .sums_of_a = of_a, .accumulate_sums = accumulate};
        CHECK(difference(out, expected_product(a, b, expected, options, before)) < tolerance(types.out));
        CHECK(difference(sums, expected_sums) < tolerance(types.out));
      }
    }
  }
}

TEST_CASE("an epilogue's memory that is not aligned leaves it to kernels") {
  DeviceContext& device = context_of(0);
  const Tensor a = random_tensor({k, m}, 1, DType::float32), b = random_tensor({k, n}, 2, DType::float32);
  const DeviceTensor x(device, a), y(device, b), out(device, {m, n}, DType::float32),
      sums(device, {n + 1}, DType::float32);
  ProductFusion fusion;
  fusion.sums = sums.view();
  fusion.sums.data = static_cast<float*>(fusion.sums.data) + 1;
  fusion.sums.shape[0] = n;
  const MatmulOptions options{.transpose_a = true};
  CHECK(launches_of(device, [&] { fused_matmul(device, x.view(), y.view(), out.view(), fusion, options); }) == 2);
  const Tensor expected_sums = Tensor::zeros({n}, DType::float64);
  CHECK(difference(out, expected_product(a, b, {.sums = expected_sums}, options)) < tolerance(DType::float32));
  CHECK(difference(sums.to_host().slice(0, 1, n), expected_sums) < tolerance(DType::float32));
}

TEST_CASE("a sum over nothing is the addend, its GELU, and sums of zero") {
  DeviceContext& device = context_of(0);
  const Tensor addend = random_tensor({m, n}, 1, DType::float32), bias = random_tensor({n}, 2, DType::float32);
  const DeviceTensor a(device, {m, 0}, DType::float32), b(device, {0, n}, DType::float32);
  const DeviceTensor added(device, addend), on_bias(device, bias), out(device, {m, n}, DType::float32);
  ProductFusion fusion;
  fusion.addend = added.view();
  fused_matmul(device, a.view(), b.view(), out.view(), fusion, {});
  CHECK(same_bits(out.to_host(), addend));
  const DeviceTensor input(device, {m, n}, DType::float32);
  fusion = {};
  fusion.bias = on_bias.view();
  fusion.gelu_input = input.view();
  fused_matmul(device, a.view(), b.view(), out.view(), fusion, {});
  CHECK(difference(input, bias.expand({m, n}).clone()) == 0);
  const DeviceTensor a_stored(device, {0, m}, DType::float32), sums(device, bias);
  fusion = {};
  fusion.sums = sums.view();
  fused_matmul(device, a_stored.view(), b.view(), out.view(), fusion, {.transpose_a = true});
  CHECK(difference(sums, Tensor::zeros({n})) == 0);
  CHECK(difference(out, Tensor::zeros({m, n})) == 0);
}
