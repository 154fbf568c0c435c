// Tensors on emulated CUDA devices: memory, copies, and the host's refused accesses.
#include <cstdint>
#include <vector>

#include "common/error.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/late_values.h"
#include "worker/tensor/random.h"
#include "worker/tensor/upload.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"

using namespace ddprun;

namespace {

[[maybe_unused]] const bool has_devices = test::use_emulated_cuda(2);
const Device first{DeviceType::cuda, 0}, second{DeviceType::cuda, 1};

Tensor counting(const Shape& shape, DType dtype = DType::float32) {
  Tensor values = Tensor::empty(shape, DType::float64);
  for (std::int64_t i = 0; i < values.numel(); ++i) values.data<double>()[i] = static_cast<double>(i);
  return values.to(dtype);
}

std::vector<double> values(const Tensor& tensor) {
  const Tensor wide = tensor.to(Device{}).to(DType::float64).contiguous();
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

}  // namespace

TEST_CASE("a tensor goes to a CUDA device, to another one, and back") {
  const Tensor host = counting({3, 5});
  const Tensor there = host.to(first);
  CHECK(there.device() == first);
  CHECK(values(there) == values(host));
  const Tensor beyond = there.to(second);
  CHECK(beyond.device() == second);
  CHECK(values(beyond) == values(host));
  CHECK(values(there.to(Device{DeviceType::cpu, 1})) == values(host));
  CHECK(Tensor::zeros({0, 4}).to(first).to(Device{}).numel() == 0);
}

TEST_CASE("strided tensors are copied between memories, in any layout on either side") {
  const Tensor host = counting({4, 6}), expected = host.transpose(0, 1).contiguous();
  const std::vector<double> wanted = values(expected);
  CHECK(values(host.transpose(0, 1).to(first)) == wanted);
  CHECK(values(host.to(first).transpose(0, 1)) == wanted);
  CHECK(values(host.to(first).transpose(0, 1).to(second)) == wanted);
  Tensor target = Tensor::zeros({4, 6}, DType::float32, first), view = target.transpose(0, 1);
  kernels::copy(expected, view);
  CHECK(values(target) == values(host));
  Tensor back = Tensor::zeros({4, 6}), back_view = back.transpose(0, 1);
  kernels::copy(view, back_view);
  CHECK(values(back) == values(host));
}

TEST_CASE("a copy between memories changes the dtype, and a blocked tensor becomes row-major") {
  const Tensor host = counting({2, 8});
  for (const DType dtype :
       {DType::float64, DType::bfloat16, DType::float16, DType::int32, DType::int64, DType::uint8}) {
    INFO(name_of(dtype));
    Tensor there = Tensor::empty({2, 8}, dtype, first);
    kernels::copy(host, there);
    CHECK(values(there) == values(host));
    Tensor back = Tensor::empty({2, 8});
    kernels::copy(there, back);
    CHECK(values(back) == values(host));
  }
  Tensor blocked = Tensor::empty_blocked({1, 8, 2, 3}, 8, DType::float32, Device{});
  kernels::copy(counting({1, 8, 2, 3}), blocked);
  CHECK(values(blocked.to(first)) == values(blocked));
  Tensor from_device = Tensor::empty_blocked({1, 8, 2, 3}, 8, DType::float32, Device{});
  kernels::copy(blocked.to(first), from_device);
  CHECK(values(from_device) == values(blocked));
}

TEST_CASE("a copy in place moves the version on, on either side") {
  Tensor there = Tensor::zeros({3}, DType::float32, first), here = Tensor::zeros({3});
  const auto there_before = there.version(), here_before = here.version();
  there.copy_from(counting({3}));
  here.copy_from(there);
  CHECK(values(here) == std::vector<double>{0, 1, 2});
  CHECK(there.version() > there_before);
  CHECK(here.version() > here_before);
}

TEST_CASE("the host may not read a CUDA device's memory, but ask for a number") {
  const Tensor there = Tensor::full({1}, 2.5, DType::float32, first);
  CHECK_THROWS_WITH(there.data<float>(), Catch::Contains("cuda:0") && Catch::Contains("host"));
  CHECK_THROWS_WITH(there.elements<float>(), Catch::Contains("cuda:0"));
  CHECK_THROWS_WITH(there.reshape({1, 1}).data<float>(), Catch::Contains("cuda:0"));
  CHECK_THROWS_WITH(there.data<double>(), Catch::Contains("accessed as float64"));
  CHECK(there.raw() != nullptr);
  CHECK(there.item() == 2.5);
  CHECK(Tensor::full({}, 7, DType::int64, second).item() == 7);
}

TEST_CASE("memory of CUDA devices is accounted for") {
  reset_peak_memory(first);
  const auto before = memory_stats(first).allocated, others = memory_stats(second).allocated;
  MemoryWatch watch;
  {
    const Tensor a = Tensor::zeros({1024}, DType::float32, first);
    CHECK(memory_stats(first).allocated == before + 4096);
    CHECK(memory_stats(second).allocated == others);
  }
  CHECK(memory_stats(first).allocated == before);
  CHECK(memory_stats(first).peak == before + 4096);
  CHECK(watch.peak() == 4096);
}

TEST_CASE("an upload does not wait, and its source may be let go at once") {
  const auto& device = cuda::CudaDevice::of(first);
  Tensor last;
  const auto waits = device.api().synchronizations(device.context());
  for (int i = 0; i < 20; ++i) {
    Tensor host = Tensor::full({1000}, i);
    last = upload(host, first);
    host.fill(-1);
  }
  Tensor pinned = Tensor::empty_pinned({4}, DType::float32);
  pinned.fill(3);
  CHECK(pinned.storage()->is_pinned());
  const Tensor from_pinned = upload(pinned, first);
  pinned = Tensor();
  CHECK(device.api().synchronizations(device.context()) == waits);
  CHECK(values(last) == std::vector<double>(1000, 19));
  CHECK(values(from_pinned) == std::vector<double>(4, 3));
}

TEST_CASE("a plain copy from pinned memory is over when it returns") {
  Tensor pinned = Tensor::empty_pinned({4}, DType::float32);
  pinned.fill(3);
  const Tensor there = pinned.to(first);
  pinned.fill(4);
  CHECK(values(there) == std::vector<double>(4, 3));
}

TEST_CASE("values of a CUDA device are on their way to the host from the start, and known after one wait") {
  const auto& device = cuda::CudaDevice::of(first);
  const auto waits = [&] { return device.api().synchronizations(device.context()); };
  LateValues late(first);
  late.wait();
  const auto before = waits();
  for (int i = 0; i < 1100; ++i) {  // more than a block has
    Tensor value = Tensor::full({}, i + 0.5,
                                i % 3 == 0   ? DType::float64
                                : i % 3 == 1 ? DType::float32
                                             : DType::bfloat16,
                                first);
    CHECK(late.add(value) == static_cast<std::size_t>(i));
    value.fill(-1);
  }
  CHECK(waits() == before);
  CHECK_FALSE(late.are_known());
  late.wait();
  late.wait();
  CHECK(waits() == before + 1);
  for (const std::size_t i : {0UL, 1UL, 2UL, 511UL, 512UL, 1023UL, 1099UL})
    CHECK(late.at(i) ==
          Tensor::full({}, static_cast<double>(i) + 0.5, i % 3 == 2 ? DType::bfloat16 : DType::float64).item());
  late.clear();
  CHECK(late.are_known());
  CHECK(late.add(Tensor::full({}, 7, DType::float32, first)) == 0);
  late.wait();
  CHECK(late.at(0) == 7);
}

TEST_CASE("values of the host are known at once") {
  LateValues late{Device{}};
  late.add(Tensor::full({}, 0.1, DType::float32));
  CHECK(late.are_known());
  CHECK(late.at(0) == static_cast<double>(0.1F));
}

TEST_CASE("what is not finite is found on a CUDA device") {
  CHECK(kernels::all_finite(Tensor::zeros({2}, DType::float32, first)));
  CHECK_FALSE(kernels::all_finite(Tensor::full({2}, INFINITY, DType::bfloat16, first)));
}

TEST_CASE("float32 is multiplied in TF32 on the CUDA device that may, while it may") {
  const auto product = [](Device device) {
    const Tensor a = Tensor::full({1, 1}, 1 + 1.0 / 4096, DType::float32, device);
    const Tensor one = Tensor::full({1, 1}, 1, DType::float32, device);
    Tensor out = Tensor::empty({1, 1}, DType::float32, device);
    kernels::of(a).matmul(a, one, out, {});
    return out.item();
  };
  CHECK(product(first) == 1 + 1.0 / 4096);
  allow_tf32(first, true);
  CHECK(product(first) == 1);
  CHECK(product(second) == 1 + 1.0 / 4096);
  allow_tf32(first, false);
  CHECK(product(first) == 1 + 1.0 / 4096);
}

TEST_CASE("tensors of several CUDA devices are looked at together") {
  std::vector<Tensor> tensors;
  for (const Device device : {first, second, first, Device{}})
    tensors.push_back(Tensor::full({3}, 1, DType::float32, device));
  CHECK(kernels::all_finite(tensors));
  for (Tensor& tensor : tensors) {
    tensor.fill(NAN);
    CHECK_FALSE(kernels::all_finite(tensors));
    tensor.fill(1);
  }
}

TEST_CASE("random numbers on a CUDA device are those of the host") {
  Generator a(7), b(7);
  Tensor here = Tensor::empty({100}), there = Tensor::empty({100}, DType::float32, first);
  fill_normal(here, 0, 1, a);
  fill_normal(there, 0, 1, b);
  CHECK(values(there) == values(here));
}

TEST_CASE("a CUDA device that does not exist is named, with how many there are") {
  CHECK_THROWS_WITH(Tensor::zeros({1}, DType::float32, Device{DeviceType::cuda, 2}),
                    Catch::Contains("cuda:2") && Catch::Contains("sees 2"));
}

TEST_CASE("what a CUDA device does not support says why") {
  const Tensor x = Tensor::zeros({2, 4}, DType::float32, first);
  Tensor out = Tensor::zeros({2, 3}, DType::float32, first);
  const Tensor weight = Tensor::zeros({3, 4}, DType::int8, first), sums = Tensor::zeros({3}, DType::int32, first);
  CHECK_THROWS_WITH(kernels::of(x).quantized_linear(x, {}, weight, sums, Tensor(), Tensor(), out),
                    Catch::Contains("quantized_linear") && Catch::Contains("cuda:0") && Catch::Contains("8 bits"));
}
