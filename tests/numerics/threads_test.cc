// The number of threads changes no bit of a result: a job may use fewer of them while others need the processors, and
// a checkpoint can be resumed with another number.
#include "worker/tensor/onednn/threads.h"

#include <thread>

#include "worker/tensor/kernels.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const kernels::Table& cpu = kernels::table({});

// Returns the result of compute() with that many threads of oneDNN.
Tensor with_threads(int count, const std::function<Tensor()>& compute) {
  Tensor result;
  std::thread([&] {
    onednn::set_threads(count);
    result = compute();
  }).join();
  return result;
}

void check_every_count(const std::function<Tensor()>& compute) {
  const Tensor alone = with_threads(1, compute);
  for (const int count : {2, 3, 5}) {
    INFO("threads " << count);
    CHECK(same_bits(with_threads(count, compute), alone));
  }
}

kernels::ConvGeometry geometry(std::int64_t batch, std::int64_t in, std::int64_t side, std::int64_t out,
                               std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::int64_t after = (side + 2 * padding - kernel) / stride + 1;
  return {batch, in, side, side, out, kernel, kernel, stride, padding, after, after};
}

const std::vector<kernels::ConvGeometry> geometries = {
    geometry(64, 1, 28, 10, 5, 1, 0),   geometry(64, 10, 12, 20, 5, 1, 0), geometry(16, 3, 32, 64, 3, 1, 1),
    geometry(16, 64, 16, 64, 3, 1, 1),  geometry(8, 64, 16, 128, 3, 2, 1), geometry(8, 64, 16, 128, 1, 2, 0),
    geometry(16, 256, 8, 256, 3, 1, 1), geometry(8, 256, 4, 512, 3, 2, 1), geometry(16, 512, 4, 512, 3, 1, 1),
    geometry(5, 4, 8, 8, 1, 2, 0),
};

}  // namespace

TEST_CASE("a process may begin with another number of threads than the environment says") {
  REQUIRE(onednn::has_several_threads());
  onednn::begin_with_threads(1);
  CHECK(onednn::threads() == 1);
  CHECK_FALSE(onednn::has_several_threads());
  onednn::begin_with_threads(2);
  CHECK(onednn::threads() == 2);
  CHECK(onednn::has_several_threads());
}

TEST_CASE("a product of 16-bit matrices has the same bits with any number of threads") {
  for (const std::int64_t m : {1, 64, 256, 500})
    for (const std::int64_t n : {10, 64, 500})
      for (const std::int64_t k : {256, 512, 768, 1000, 1024, 8192})
        for (const bool transposed : {false, true}) {
          const Tensor a = random_tensor(transposed ? Shape{k, m} : Shape{m, k}, 1).to(DType::bfloat16);
          const Tensor b = random_tensor({k, n}, 2).to(DType::bfloat16);
          INFO(m << " x " << n << " x " << k << (transposed ? ", transposed" : ""));
          check_every_count([&] {
            Tensor out = Tensor::zeros({m, n});
            cpu.matmul(a, b, out, {.transpose_a = transposed});
            return out;
          });
        }
}

TEST_CASE("a matrix product has the same bits with any number of threads") {
  const std::vector<std::int64_t> sides{1, 10, 64, 128, 500};
  std::vector<std::int64_t> sums{256, 1000, 4096};
  if (__builtin_cpu_supports("avx512f") == 0) sums.insert(sums.end(), {1, 8, 31, 100, 255});  // sgemm computes all
  for (const std::int64_t m : sides)
    for (const std::int64_t n : sides)
      for (const std::int64_t k : sums)
        for (int variant = 0; variant < 4; ++variant) {
          const kernels::MatmulOptions options{(variant & 1) != 0, (variant & 2) != 0, variant == 3};
          const Tensor a = random_tensor(options.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
          const Tensor b = random_tensor(options.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
          INFO(m << " x " << n << " x " << k << " variant " << variant);
          check_every_count([&] {
            Tensor out = Tensor::zeros({m, n});
            cpu.matmul(a, b, out, options);
            return out;
          });
        }
}

// Calls compute() as in a process that began with one thread.
Tensor in_process_of_one_thread(const std::function<Tensor()>& compute) {
  const int before = onednn::threads();
  onednn::begin_with_threads(1);
  Tensor result = compute();
  onednn::begin_with_threads(before);
  return result;
}

// Checks that with DividedSums a process that began with one thread computes what others compute.
void check_divided_sums(const std::function<Tensor()>& compute) {
  REQUIRE(onednn::has_several_threads());
  const Tensor expected = compute();
  CHECK(same_bits(in_process_of_one_thread([&] {
                    const onednn::DividedSums divided;
                    return compute();
                  }),
                  expected));
}

// Calls check(geometry, x, weight, grad) for every convolution and each type.
template <class Check>
void for_each_convolution(Check check) {
  for (const auto& g : geometries)
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      INFO("batch " << g.batch << ", channels " << g.in_channels << " to " << g.out_channels << ", side " << g.height
                    << ", kernel " << g.kernel_h << ", " << name_of(dtype));
      check(g, random_tensor({g.batch, g.in_channels, g.height, g.width}, 1).to(dtype),
            random_tensor({g.out_channels, g.in_channels, g.kernel_h, g.kernel_w}, 2).to(dtype),
            random_tensor({g.batch, g.out_channels, g.out_h, g.out_w}, 3).to(dtype));
    }
}

TEST_CASE("a convolution has the same bits with any number of threads") {
  for_each_convolution([](const auto& g, const Tensor& x, const Tensor& weight, const Tensor&) {
    check_every_count([&] { return cpu.conv2d(g, x, weight, {}); });
  });
}

TEST_CASE("a convolution's gradient of the input has the same bits with any number of threads") {
  for_each_convolution([](const auto& g, const Tensor&, const Tensor& weight, const Tensor& grad) {
    check_every_count([&] { return cpu.conv2d_backward_input(g, grad, weight); });
  });
}

TEST_CASE("a convolution's gradient of the weight has the same bits with any number of threads") {
  for_each_convolution([](const auto& g, const Tensor& x, const Tensor& weight, const Tensor& grad) {
    check_every_count([&] {
      Tensor out = Tensor::zeros(weight.shape());
      cpu.conv2d_backward_weight(g, x, grad, out, false);
      return out;
    });
  });
}

TEST_CASE("in a DividedSums a process that began with one thread has the bits of one with several") {
  for_each_convolution([](const auto& g, const Tensor& x, const Tensor& weight, const Tensor& grad) {
    check_divided_sums([&] {
      Tensor out = Tensor::zeros(weight.shape());
      cpu.conv2d_backward_weight(g, x, grad, out, false);
      return out;
    });
    check_divided_sums([&] { return cpu.conv2d(g, x, weight, {}); });
    check_divided_sums([&] { return cpu.conv2d_backward_input(g, grad, weight); });
  });
  for (const DType dtype : {DType::float32, DType::bfloat16})
    check_divided_sums([&] {
      Tensor out = Tensor::zeros({64, 10});
      cpu.matmul(random_tensor({64, 4096}, 1).to(dtype), random_tensor({4096, 10}, 2).to(dtype), out, {});
      return out;
    });
  const auto weight_gradient = [] {
    Tensor out = Tensor::zeros({20, 10, 5, 5});
    cpu.conv2d_backward_weight(geometry(64, 10, 12, 20, 5, 1, 0), random_tensor({64, 10, 12, 12}, 1),
                               random_tensor({64, 20, 8, 8}, 3), out, false);
    return out;
  };
  CHECK_FALSE(same_bits(in_process_of_one_thread(weight_gradient), weight_gradient()));  // without one
}
