// Every float32 path against the plain loops in double, over shapes that no vector width divides.
#include "worker/tensor/kernels.h"

#include "worker/tensor/onednn/matmul.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const kernels::Table& cpu = kernels::table({});

Tensor wide(const Tensor& tensor) {
  return tensor.to(DType::float64).contiguous();
}

kernels::ConvGeometry geometry(std::int64_t batch, std::int64_t in, std::int64_t height, std::int64_t width,
                               std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return {batch,
          in,
          height,
          width,
          out,
          kernel,
          kernel,
          stride,
          padding,
          (height + 2 * padding - kernel) / stride + 1,
          (width + 2 * padding - kernel) / stride + 1};
}

const std::vector<kernels::ConvGeometry> geometries = {
    geometry(64, 1, 28, 28, 10, 5, 1, 0),  // the two geometries of the CNN
    geometry(64, 10, 12, 12, 20, 5, 1, 0), geometry(1, 1, 1, 1, 1, 1, 1, 0),
    geometry(3, 3, 13, 11, 7, 3, 2, 1),  // the last column and row are not covered by a window
    geometry(2, 16, 9, 9, 33, 3, 1, 1),    geometry(2, 5, 8, 6, 4, 4, 3, 2),
    geometry(5, 2, 7, 17, 3, 7, 1, 3),     geometry(2, 3, 9, 9, 32, 3, 1, 1),  // channels that fill blocks
    geometry(2, 32, 9, 7, 48, 3, 2, 1),    geometry(2, 16, 6, 6, 16, 3, 1, 1),
    geometry(4, 2, 8, 8, 2, 1, 2, 0),  // a 1x1 kernel with a stride, and channels that do not
    geometry(4, 4, 8, 8, 8, 1, 2, 0),
};

Tensor blocked(const Tensor& tensor, std::int64_t block) {
  return tensor.in_layout_of(Tensor::empty_blocked(tensor.shape(), block, tensor.dtype(), tensor.device()));
}

}  // namespace

TEST_CASE("matrix products agree with the plain loops, transposed or not, added or not") {
  struct Case {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Case{1, 1, 1}, Case{64, 50, 320}, Case{17, 5, 33}, Case{3, 129, 1}, Case{100, 10, 64},
                                Case{3, 4, 0}, Case{0, 4, 5}}) {
    for (int variant = 0; variant < 8; ++variant) {
      const kernels::MatmulOptions options{(variant & 1) != 0, (variant & 2) != 0, (variant & 4) != 0};
      const Tensor a = random_tensor(options.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
      const Tensor b = random_tensor(options.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
      Tensor out = random_tensor({m, n}, 3);
      Tensor expected = wide(out);
      cpu.matmul(a, b, out, options);
      cpu.matmul(wide(a), wide(b), expected, options);
      INFO(m << " x " << n << " x " << k << ", variant " << variant);
      CHECK(difference(out, expected) < 1e-6);
    }
  }
}

TEST_CASE("products through a primitive agree with the plain loops, in the types that the processor has") {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    if (dtype != DType::float32 && !onednn::multiplies_fast(dtype)) continue;
    for (int variant = 0; variant < 16; ++variant) {
      const kernels::MatmulOptions options{(variant & 1) != 0, (variant & 2) != 0, (variant & 4) != 0};
      const std::int64_t m = 17, n = 33, k = 40;
      const Tensor a = random_tensor(options.transpose_a ? Shape{k, m} : Shape{m, k}, 1).to(dtype);
      const Tensor b = random_tensor(options.transpose_b ? Shape{n, k} : Shape{k, n}, 2).to(dtype);
      Tensor out = random_tensor({m, n}, 3).to((variant & 8) != 0 ? dtype : DType::float32);
      Tensor expected = wide(out);
      cpu.matmul(wide(a), wide(b), expected, options);
      for (int call = 0; call < 2; ++call) {  // the second one finds the primitive made
        Tensor result = out.clone();
        onednn::multiply({m, n, k, a.size(1), b.size(1), n, options}, {dtype, out.dtype()}, a.raw(), b.raw(),
                         result.raw());
        INFO(name_of(dtype) << ", variant " << variant);
        CHECK(difference(result, expected) < (out.dtype() == DType::float32 ? 1e-6 : 1e-2));
      }
    }
  }
}

TEST_CASE("a matrix product in double is the sum of products") {
  Tensor out = Tensor::zeros({2, 2}, DType::float64);
  cpu.matmul(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}), Tensor::from<double>({1, 0, 2, 1, 0, 3}, {3, 2}), out,
             {});
  CHECK(values(out) == std::vector<double>{5, 11, 14, 23});
}

TEST_CASE("convolution agrees with the plain loops, forward and backward") {
  for (const auto& g : geometries) {
    const Tensor x = random_tensor({g.batch, g.in_channels, g.height, g.width}, 1);
    const Tensor weight = random_tensor({g.out_channels, g.in_channels, g.kernel_h, g.kernel_w}, 2);
    const Tensor bias = random_tensor({g.out_channels}, 3);
    const Tensor grad = random_tensor({g.batch, g.out_channels, g.out_h, g.out_w}, 4);
    INFO("input " << to_string(x.shape()) << ", weight " << to_string(weight.shape()) << ", stride " << g.stride
                  << ", padding " << g.padding);
    CHECK(difference(cpu.conv2d(g, x, weight, bias), cpu.conv2d(g, wide(x), wide(weight), wide(bias))) < 1e-5);
    CHECK(difference(cpu.conv2d(g, x, weight, {}), cpu.conv2d(g, wide(x), wide(weight), {})) < 1e-5);
    CHECK(difference(cpu.conv2d_backward_input(g, grad, weight),
                     cpu.conv2d_backward_input(g, wide(grad), wide(weight))) < 1e-5);
    for (bool accumulate : {false, true}) {
      Tensor out = random_tensor(weight.shape(), 5);
      Tensor expected = wide(out);
      cpu.conv2d_backward_weight(g, x, grad, out, accumulate);
      cpu.conv2d_backward_weight(g, wide(x), wide(grad), expected, accumulate);
      CHECK(difference(out, expected) < 1e-5);
    }
  }
}

// oneDNN convolves blocks of 16 channels in bfloat16 where the processor can; other images are widened.
TEST_CASE("convolution of 16-bit images agrees with the plain loops, in any layout") {
  for (const std::int64_t channels : {32, 10}) {
    auto g = geometry(2, channels, 10, 10, 16, 3, 1, 1);
    const Tensor x = random_tensor({2, channels, 10, 10}, 1).to(DType::bfloat16);
    const Tensor weight = random_tensor({16, channels, 3, 3}, 2).to(DType::bfloat16);
    const Tensor bias = random_tensor({16}, 3).to(DType::bfloat16);
    const Tensor grad = random_tensor({2, 16, 10, 10}, 4).to(DType::bfloat16);
    for (const auto& [block, winograd] : {std::pair{0, false}, {0, true}, {16, false}, {16, true}}) {
      g.winograd = winograd;
      const auto laid_out = [&](const Tensor& image) {
        return block != 0 && image.size(1) % block == 0 ? blocked(image, block) : image;
      };
      INFO(channels << " channels, blocked by " << block << ", Winograd's allowed: " << winograd);
      const Tensor y = cpu.conv2d(g, laid_out(x), weight, bias);
      CHECK(y.dtype() == DType::bfloat16);
      CHECK(difference(y, cpu.conv2d(g, wide(x), wide(weight), wide(bias))) < 1e-2);
      CHECK(difference(cpu.conv2d_backward_input(g, laid_out(grad), weight),
                       cpu.conv2d_backward_input(g, wide(grad), wide(weight))) < 1e-2);
      for (const bool accumulate : {false, true}) {
        Tensor out = random_tensor(weight.shape(), 5), expected = wide(out);
        cpu.conv2d_backward_weight(g, laid_out(x), laid_out(grad), out, accumulate);
        cpu.conv2d_backward_weight(g, wide(x), wide(grad), expected, accumulate);
        // Sums are in float32; products are exact, but where Winograd's algorithm transforms their operands.
        CHECK(difference(out, expected) < (winograd ? 1e-4 : 1e-5));
      }
    }
  }
}

TEST_CASE("batch norm of 16-bit images computes in float32, in any layout") {
  const Tensor x = random_tensor({2, 32, 5, 5}, 1).to(DType::bfloat16), weight = random_tensor({32}, 2);
  const Tensor bias = random_tensor({32}, 3), grad = random_tensor({2, 32, 5, 5}, 4).to(DType::bfloat16);
  Tensor expected_variance;
  const auto expected = cpu.batch_statistics(wide(x), 2, 25, 1e-5, expected_variance);
  const auto y = cpu.batch_norm(wide(x), 2, 25, expected, wide(weight), wide(bias));
  const auto gradients = cpu.batch_norm_backward(wide(x), wide(grad), 2, 25, expected, wide(weight), true);
  for (const std::int64_t block : {0, 8, 16}) {
    const auto laid_out = [&](const Tensor& image) { return block != 0 ? blocked(image, block) : image; };
    INFO("blocked by " << block);
    Tensor variance;
    const auto statistics = cpu.batch_statistics(laid_out(x), 2, 25, 1e-5, variance);
    CHECK(statistics.mean.dtype() == DType::float32);
    CHECK(difference(statistics.mean, expected.mean) < 1e-6);
    CHECK(difference(variance, expected_variance) < 1e-6);
    const Tensor normalized = cpu.batch_norm(laid_out(x), 2, 25, statistics, weight, bias);
    CHECK(normalized.dtype() == DType::bfloat16);
    CHECK(difference(normalized, y) < 1e-2);
    const auto found = cpu.batch_norm_backward(laid_out(x), laid_out(grad), 2, 25, statistics, weight, true);
    CHECK(difference(found.x, gradients.x) < 1e-2);
    CHECK(difference(found.weight, gradients.weight) < 1e-5);
    CHECK(difference(found.bias, gradients.bias) < 1e-5);
  }
}

TEST_CASE("convolution takes images in any layout, and by Winograd's algorithm") {
  for (const bool winograd : {false, true}) {
    auto g = geometry(2, 32, 10, 10, 16, 3, 1, 1);
    g.winograd = winograd;
    const Tensor x = random_tensor({2, 32, 10, 10}, 1), weight = random_tensor({16, 32, 3, 3}, 2);
    const Tensor grad = random_tensor({2, 16, 10, 10}, 3);
    const double tolerance = winograd ? 1e-4 : 1e-5;
    for (const std::int64_t block : {8, 16}) {
      CHECK(difference(cpu.conv2d(g, blocked(x, block), weight, {}), cpu.conv2d(g, wide(x), wide(weight), {})) <
            tolerance);
      CHECK(difference(cpu.conv2d_backward_input(g, blocked(grad, block), weight),
                       cpu.conv2d_backward_input(g, wide(grad), wide(weight))) < tolerance);
      Tensor out = Tensor::zeros(weight.shape()), expected = wide(out);
      cpu.conv2d_backward_weight(g, blocked(x, block), blocked(grad, block), out, false);
      cpu.conv2d_backward_weight(g, wide(x), wide(grad), expected, false);
      CHECK(difference(out, expected) < tolerance);
    }
  }
}

TEST_CASE("elementwise operations and batch norm keep a blocked layout") {
  const Tensor x = random_tensor({3, 32, 9, 9}, 1), other = random_tensor(x.shape(), 2);
  const Tensor weight = random_tensor({32}, 3), bias = random_tensor({32}, 4);
  for (const std::int64_t block : {8, 16}) {
    const Tensor b = blocked(x, block), c = blocked(other, block);
    CHECK(same_bits(kernels::unary(kernels::Unary::relu, b), kernels::unary(kernels::Unary::relu, x)));
    CHECK(kernels::unary(kernels::Unary::relu, b).channel_block() == block);
    CHECK(same_bits(kernels::add(b, c), kernels::add(x, other)));
    CHECK(same_bits(kernels::add(b, other), kernels::add(x, other)));
    CHECK(same_bits(kernels::add(x, c), kernels::add(x, other)));
    Tensor variance, expected_variance;
    const auto statistics = cpu.batch_statistics(b, 3, 81, 1e-5, variance);
    const auto expected = cpu.batch_statistics(wide(x), 3, 81, 1e-5, expected_variance);
    CHECK(difference(statistics.mean, expected.mean) < 1e-6);
    CHECK(difference(variance, expected_variance) < 1e-6);
    const Tensor y = cpu.batch_norm(b, 3, 81, statistics, weight, bias);
    CHECK(y.channel_block() == block);
    CHECK(difference(y, cpu.batch_norm(wide(x), 3, 81, expected, wide(weight), wide(bias))) < 1e-6);
    for (const bool training : {false, true}) {
      const auto gradients = cpu.batch_norm_backward(b, c, 3, 81, statistics, weight, training);
      const auto plain = cpu.batch_norm_backward(wide(x), wide(other), 3, 81, expected, wide(weight), training);
      CHECK(difference(gradients.x, plain.x) < 1e-5);
      CHECK(difference(gradients.weight, plain.weight) < 1e-5);
      CHECK(difference(gradients.bias, plain.bias) < 1e-5);
    }
  }
}

TEST_CASE("a residual block of images in blocks has the gradients of double") {
  const Tensor input = random_tensor({2, 16, 8, 8}, 1), kernel = random_tensor({16, 16, 3, 3}, 2);
  const auto gradients = [&](DType dtype) {
    const Variable x(input.to(dtype), true), w(kernel.to(dtype), true);
    const Variable gain(Tensor::full({16}, 0.5, dtype), true), shift(Tensor::zeros({16}, dtype), true);
    Tensor mean = Tensor::zeros({16}, dtype), variance = Tensor::full({16}, 1, dtype);
    const Variable inner = batch_norm(conv2d(x, w, {}, {.padding = 1}), gain, shift, mean, variance, {});
    const Variable pooled = max_pool2d(relu(add(inner, x)), {.kernel = 2});
    sum(mul(adaptive_avg_pool2d(relu(conv2d(pooled, w, {}, {.stride = 2, .padding = 1})), 1, 1), 3)).backward();
    return std::vector{x.grad(), w.grad(), gain.grad(), shift.grad()};
  };
  const auto single = gradients(DType::float32), exact = gradients(DType::float64);
  for (std::size_t i = 0; i < single.size(); ++i) CHECK(difference(single[i], exact[i]) < 1e-4);
}

TEST_CASE("the plain convolution is the sum of its definition") {
  const auto g = geometry(2, 3, 5, 6, 2, 3, 2, 1);
  const Tensor x = random_tensor({2, 3, 5, 6}, 1, DType::float64),
               weight = random_tensor({2, 3, 3, 3}, 2, DType::float64);
  std::vector<double> expected;
  for (int n = 0; n < 2; ++n)
    for (int oc = 0; oc < 2; ++oc)
      for (int oy = 0; oy < g.out_h; ++oy)
        for (int ox = 0; ox < g.out_w; ++ox) {
          double total = 0;
          for (int ic = 0; ic < 3; ++ic)
            for (int ky = 0; ky < 3; ++ky)
              for (int kx = 0; kx < 3; ++kx) {
                const int y = oy * 2 - 1 + ky, column = ox * 2 - 1 + kx;
                if (y < 0 || y >= 5 || column < 0 || column >= 6) continue;
                total += x.data<double>()[((n * 3 + ic) * 5 + y) * 6 + column] *
                         weight.data<double>()[((oc * 3 + ic) * 3 + ky) * 3 + kx];
              }
          expected.push_back(total);
        }
  CHECK(difference(values(cpu.conv2d(g, x, weight, {})), expected) < 1e-14);
}

TEST_CASE("max-pooling finds the first maximum of every window") {
  struct Case {
    std::int64_t height, width, kernel, stride, padding;
  };
  for (const auto& c :
       {Case{24, 24, 2, 2, 0}, Case{7, 9, 2, 2, 0}, Case{4, 35, 2, 2, 0}, Case{8, 7, 3, 2, 1}, Case{5, 5, 3, 1, 0}}) {
    const kernels::PoolGeometry g{6,
                                  c.height,
                                  c.width,
                                  c.kernel,
                                  c.stride,
                                  c.padding,
                                  (c.height + 2 * c.padding - c.kernel) / c.stride + 1,
                                  (c.width + 2 * c.padding - c.kernel) / c.stride + 1};
    Tensor x = random_tensor({2, 3, c.height, c.width}, 1);
    // There are few different values, so that windows have equal maxima.
    for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = std::round(x.data<float>()[i]);
    std::vector<double> expected, expected_index;
    for (std::int64_t plane = 0; plane < 6; ++plane)
      for (std::int64_t oy = 0; oy < g.out_h; ++oy)
        for (std::int64_t ox = 0; ox < g.out_w; ++ox) {
          double best = -INFINITY;
          std::int64_t at = -1;
          for (std::int64_t k = 0; k < c.kernel * c.kernel; ++k) {
            const std::int64_t y = oy * c.stride - c.padding + k / c.kernel,
                               column = ox * c.stride - c.padding + k % c.kernel;
            if (y < 0 || y >= c.height || column < 0 || column >= c.width) continue;
            const double value = static_cast<double>(x.data<float>()[(plane * c.height + y) * c.width + column]);
            if (value > best) {
              best = value;
              at = y * c.width + column;
            }
          }
          expected.push_back(best);
          expected_index.push_back(static_cast<double>(at));
        }
    for (DType dtype : {DType::float32, DType::float64}) {
      Tensor index;
      const Tensor y = cpu.max_pool2d(g, x.to(dtype), {2, 3, g.out_h, g.out_w}, index);
      CHECK(values(y) == expected);
      CHECK(values(index) == expected_index);
    }
  }
}

TEST_CASE("a NaN in a window is its maximum, wherever it is") {
  for (int place = 0; place < 4; ++place) {
    Tensor x = Tensor::zeros({1, 1, 2, 2});
    x.data<float>()[place] = NAN;
    Tensor index;
    CHECK(std::isnan(cpu.max_pool2d({1, 2, 2, 2, 2, 0, 1, 1}, x, {1, 1, 1, 1}, index).item()));
    CHECK(index.item() == place);
  }
}

TEST_CASE("sums keep their precision over a million values") {
  const Tensor x = Tensor::full({1 << 20}, 0.1);
  CHECK(kernels::sum(x).item() == Approx(0.1F * static_cast<double>(1 << 20)).epsilon(1e-6));
  Tensor out = Tensor::full({3}, 1);
  cpu.sum_to_bias(Tensor::full({5, 3, 7}, 0.5), 5, 7, out, true);
  CHECK(values(out) == std::vector<double>{18.5, 18.5, 18.5});
  cpu.sum_to_bias(Tensor::full({5, 3}, 0.5), 5, 1, out, false);
  CHECK(values(out) == std::vector<double>{2.5, 2.5, 2.5});
}

TEST_CASE("log-softmax of large scores is finite") {
  const Tensor x = Tensor::from<float>({1000, 1000, -1000, 0, 0, 0}, {2, 3});
  Tensor y = Tensor::empty_like(x);
  cpu.softmax(x, {2, 3, 1}, true, y);
  CHECK(difference(values(y), {-std::log(2.0), -std::log(2.0), -2000 - std::log(2.0), -std::log(3.0), -std::log(3.0),
                               -std::log(3.0)}) < 1e-6);
}

TEST_CASE("the same input gives the same bits, wherever it lies in memory") {
  const auto g = geometry(8, 10, 12, 12, 20, 5, 1, 0);
  const Tensor x = random_tensor({8, 10, 12, 12}, 1), weight = random_tensor({20, 10, 5, 5}, 2);
  std::vector<float> moved(static_cast<std::size_t>(x.numel()) + 1);
  Tensor odd = Tensor::wrap(moved.data() + 1, x.shape(), DType::float32, nullptr);
  odd.copy_from(x);
  const Tensor y = cpu.conv2d(g, x, weight, {});
  CHECK(same_bits(y, cpu.conv2d(g, odd, weight, {})));
  Tensor first = Tensor::empty(weight.shape()), second = Tensor::empty(weight.shape());
  cpu.conv2d_backward_weight(g, x, y, first, false);
  cpu.conv2d_backward_weight(g, odd, y, second, false);
  CHECK(same_bits(first, second));
  CHECK(same_bits(kernels::sum(x), kernels::sum(odd)));
  Tensor product = Tensor::empty({8, 8}), product_of_odd = Tensor::empty({8, 8});
  cpu.matmul(x.reshape({8, -1}), x.reshape({8, -1}), product, {.transpose_b = true});
  cpu.matmul(odd.reshape({8, -1}), odd.reshape({8, -1}), product_of_odd, {.transpose_b = true});
  CHECK(same_bits(product, product_of_odd));
}

TEST_CASE("integer tensors are refused by name") {
  CHECK_THROWS_WITH(kernels::unary(kernels::Unary::relu, Tensor::zeros({2}, DType::int32)), Catch::Contains("int32"));
}

TEST_CASE("an operation that a device does not have is named") {
  const kernels::Table none;
  CHECK_THROWS_WITH(none.sum(Tensor::zeros({2}), {1, 2, 1}, *std::make_unique<Tensor>()),
                    "sum of float32 tensors is not supported on cpu:0");
}
