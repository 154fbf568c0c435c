#include "worker/tensor/tensor.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "common/error.h"
#include "worker/tensor/storage.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a tensor's own memory is aligned, also when it was used before") {
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t size : {1, 3, 1000, 1001, 5000, 100000}) {
      const Tensor tensor = Tensor::empty({size});
      CHECK(reinterpret_cast<std::uintptr_t>(tensor.raw()) % storage_alignment == 0);
    }
  }
}

TEST_CASE("a block in use is never handed out again") {
  Tensor first = Tensor::full({5000}, 1);
  Tensor shared = first.reshape({50, 100});
  first = Tensor();
  const Tensor second = Tensor::full({5000}, 2);
  CHECK(shared.raw() != second.raw());
  CHECK(shared.data<float>()[4999] == 1);
}

TEST_CASE("copies of the handle share, clones do not") {
  Tensor a = Tensor::zeros({2, 3});
  Tensor b = a, c = a.clone();
  CHECK_FALSE(a.sole_owner());
  CHECK(c.sole_owner());
  b.data<float>()[5] = 7;
  CHECK(a.data<float>()[5] == 7);
  CHECK(c.data<float>()[5] == 0);
}

TEST_CASE("reshape shares the memory and works out one size") {
  Tensor a = Tensor::from<std::int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(a.reshape({3, -1}).shape() == Shape{3, 2});
  CHECK(a.reshape({-1}).raw() == a.raw());
  CHECK_THROWS_WITH(a.reshape({4}), Catch::Contains("[2, 3] has 6 elements, [4] has 4"));
  CHECK_THROWS_WITH(a.reshape({4, -1}), Catch::Contains("[2, 3]"));
}

TEST_CASE("sizes, by number from either end") {
  const Tensor a = Tensor::zeros({2, 3});
  CHECK(a.size(0) == 2);
  CHECK(a.size(-1) == 3);
  CHECK(a.bytes() == 24);
  CHECK(Tensor::zeros({}).numel() == 1);
  CHECK(Tensor::zeros({0, 5}).numel() == 0);
  CHECK_THROWS_WITH(a.size(2), Catch::Contains("[2, 3] has no dimension 2"));
  CHECK_THROWS_AS(Tensor::zeros({-1}), Error);
}

TEST_CASE("conversion between element types") {
  const Tensor bytes = Tensor::from<std::uint8_t>({0, 127, 255}, {3});
  const Tensor floats = bytes.to(DType::float32);
  CHECK(floats.data<float>()[2] == 255);
  CHECK(floats.to(DType::float32).raw() == floats.raw());
  CHECK(floats.to(DType::int64).data<std::int64_t>()[1] == 127);
  CHECK(floats.to(DType::float16).to(DType::int32).data<std::int32_t>()[2] == 255);
  const Tensor third = Tensor::from<double>({1.0 / 3, 65519, 70000, 1e-8}, {4});
  const Tensor half = third.to(DType::float16).to(DType::float64), brain = third.to(DType::bfloat16).to(DType::float64);
  CHECK(half.data<double>()[0] == 0x1.554p-2);
  CHECK(half.data<double>()[1] == 65504);
  CHECK(std::isinf(half.data<double>()[2]));
  CHECK(half.data<double>()[3] == 0);
  CHECK(brain.data<double>()[0] == 0x1.56p-2);
}

TEST_CASE("the wrong element type is an error, not a reinterpretation") {
  Tensor a = Tensor::zeros({2});
  CHECK_THROWS_WITH(a.data<double>(), Catch::Contains("float32") && Catch::Contains("float64"));
  CHECK_THROWS_AS(a.copy_from(Tensor::zeros({3})), Error);
  CHECK_THROWS_AS(a.copy_from(Tensor::zeros({2}, DType::int32)), Error);
  CHECK_THROWS_AS(a.item(), Error);
  CHECK_THROWS_AS(Tensor::from<float>({1, 2}, {3}), Error);
}

TEST_CASE("wrapped memory is used in place and kept alive by its owner") {
  auto owner = std::make_shared<std::vector<float>>(4, 1.0F);
  Tensor slice = Tensor::wrap(owner->data() + 1, {2}, DType::float32, owner);
  slice.fill(3);
  CHECK(*owner == std::vector<float>{1, 3, 3, 1});
  std::weak_ptr<std::vector<float>> watch = owner;
  owner.reset();
  CHECK_FALSE(watch.expired());
  CHECK(slice.data<float>()[1] == 3);
  slice = Tensor();
  CHECK(watch.expired());
}

TEST_CASE("fill and item") {
  CHECK(Tensor::full({}, 2.5).item() == 2.5);
  CHECK(Tensor::full({1}, 3, DType::int32).item() == 3);
  Tensor a = Tensor::full({2}, 1);
  a.fill(0);
  CHECK(a.data<float>()[1] == 0);
  CHECK_FALSE(Tensor().defined());
}

TEST_CASE("views share memory and know their strides") {
  const Tensor a = Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 2});
  const Tensor p = a.permute({2, 0, 1});
  CHECK(p.shape() == Shape{2, 2, 3});
  CHECK(p.strides() == Strides{1, 6, 2});
  CHECK_FALSE(p.is_contiguous());
  CHECK(p.raw() == a.raw());
  const Tensor dense = p.contiguous();
  CHECK(std::vector<float>(dense.data<float>(), dense.data<float>() + 12) ==
        std::vector<float>{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
  CHECK(a.transpose(0, 1).select(0, 2).contiguous().data<float>()[2] == 10);
  CHECK(a.slice(1, 1, 2).contiguous().data<float>()[4] == 8);
  CHECK(a.slice(0, 1, 1).is_contiguous());
  CHECK(a.select(0, 1).data<float>()[0] == 6);
  const Tensor e = a.select(2, 0).reshape({2, 1, 3}).expand({2, 4, 3});
  CHECK(e.strides() == Strides{6, 0, 2});
  CHECK(e.contiguous().data<float>()[12 + 9 + 1] == 8);
}

TEST_CASE("strided memory is not walked as if it were dense") {
  const Tensor t = Tensor::zeros({2, 3}).transpose(0, 1);
  CHECK_THROWS_WITH(t.data<float>(), Catch::Contains("[1, 3]") && Catch::Contains("contiguous"));
  CHECK_THROWS_WITH(t.reshape({6}), Catch::Contains("call contiguous() first"));
  // If its memory layout allows it, a strided tensor has views too.
  const Tensor part = Tensor::zeros({4, 6, 2}).slice(0, 1, 2).slice(2, 0, 1);
  CHECK(part.reshape({2, 2, 3}).strides() == Strides{12, 6, 2});
  CHECK(part.reshape({12}).strides() == Strides{2});
  CHECK(Tensor::zeros({3, 1}).expand({3, 5}).reshape({3, 5, 1}).strides()[1] == 0);
}

TEST_CASE("wrong views are errors that say what does not fit") {
  const Tensor a = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH(a.permute({0, 0}), Catch::Contains("given twice"));
  CHECK_THROWS_WITH(a.permute({0}), Catch::Contains("1 dimensions"));
  CHECK_THROWS_WITH(a.slice(1, 2, 2), Catch::Contains("[2, 4)") && Catch::Contains("[2, 3]"));
  CHECK_THROWS_WITH(a.select(0, 2), Catch::Contains("[2, 3)"));
  CHECK_THROWS_WITH(a.expand({2, 4}), Catch::Contains("[2, 3]") && Catch::Contains("[2, 4]"));
  CHECK_THROWS_WITH(Shape({1, 1, 1, 1, 1, 1, 1}), Catch::Contains("at most 6"));
}

TEST_CASE("memory is accounted for by device") {
  const Device device = parse_device("cpu:3");
  reset_peak_memory(device);
  const auto before = memory_stats(device).allocated;
  {
    const Tensor a = Tensor::zeros({1024}, DType::float32, device);
    CHECK(a.device() == device);
    CHECK(memory_stats(device).allocated == before + 4096);
    const Tensor view = a.reshape({32, 32});
    const Tensor there = view.to(Device{});
    CHECK(there.device() == Device{});
    CHECK(memory_stats(device).allocated == before + 4096);
  }
  CHECK(memory_stats(device).allocated == before);
  CHECK(memory_stats(device).peak == before + 4096);
}

TEST_CASE("a device's name") {
  CHECK(parse_device("cpu") == Device{});
  CHECK(to_string(parse_device("cuda:2")) == "cuda:2");
  for (const char* wrong : {"", "cpu:", "cpu:-1", "gpu:0", "cpu:1x", "cpu:64"})
    CHECK_THROWS_WITH(parse_device(wrong), Catch::Contains("is not a device"));
}

TEST_CASE("a change in place moves the version on") {
  Tensor a = Tensor::zeros({2});
  const auto before = a.version();
  const Tensor view = a.reshape({1, 2});
  a.fill(1);
  CHECK(view.version() > before);
}

namespace {

// Returns 0, 1, 2, ... in a shape.
Tensor counting(const Shape& shape, DType dtype = DType::float32) {
  Tensor result = Tensor::empty(shape, DType::float32);
  for (std::int64_t i = 0; i < result.numel(); ++i) result.data<float>()[i] = static_cast<float>(i);
  return result.to(dtype);
}

Tensor blocked(const Tensor& tensor, std::int64_t block) {
  return tensor.in_layout_of(Tensor::empty_blocked(tensor.shape(), block, tensor.dtype(), tensor.device()));
}

}  // namespace

TEST_CASE("an image blocked by channels has the channels of a block side by side") {
  const Tensor image = counting({2, 4, 2, 3}), block = blocked(image, 2);
  CHECK(block.shape() == image.shape());
  CHECK(block.channel_block() == 2);
  CHECK(block.is_dense());
  CHECK_FALSE(block.is_contiguous());
  // The memory has the first position of channels 0 and 1, then the second.
  const float* memory = block.elements<float>();
  CHECK(std::vector<float>(memory, memory + 4) == std::vector<float>{0, 6, 1, 7});
}

TEST_CASE("a blocked image comes back as it was, in every type, from any strides") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    const Tensor image = counting({2, 8, 2, 3}, dtype), block = blocked(image, 4);
    CHECK(block.contiguous().is_contiguous());
    CHECK(std::memcmp(block.contiguous().raw(), image.raw(), image.bytes()) == 0);
    CHECK(std::memcmp(blocked(block, 8).contiguous().raw(), image.raw(), image.bytes()) == 0);
    CHECK(std::memcmp(block.clone().raw(), block.raw(), image.bytes()) == 0);
    CHECK(std::memcmp(blocked(image.transpose(2, 3), 4).contiguous().raw(), image.transpose(2, 3).contiguous().raw(),
                      image.bytes()) == 0);
  }
}

TEST_CASE("a blocked image keeps its layout in another type") {
  const Tensor image = counting({2, 8, 2, 3});
  for (const DType dtype : {DType::float64, DType::bfloat16, DType::float16}) {
    const Tensor converted = blocked(image, 4).to(dtype);
    CHECK(converted.channel_block() == 4);
    CHECK(std::memcmp(converted.contiguous().raw(), image.to(dtype).raw(), converted.bytes()) == 0);
  }
}

TEST_CASE("what needs strided memory refuses a blocked image, views see its elements") {
  const Tensor image = counting({1, 4, 2, 2}), block = blocked(image, 4);
  CHECK_THROWS_WITH(block.data<float>(), Catch::Contains("blocked by 4 channels"));
  CHECK_THROWS_WITH(block.strides(), Catch::Contains("call contiguous() first"));
  CHECK_THROWS_WITH(Tensor::empty_blocked({1, 6, 2, 2}, 4, DType::float32, {}), Catch::Contains("6"));
  CHECK(block.reshape({16}).data<float>()[5] == 5);
  CHECK(block.permute({0, 2, 3, 1}).contiguous().data<float>()[1] == 4);
  CHECK(block.select(1, 3).contiguous().data<float>()[0] == 12);
  CHECK(block.expand({2, 4, 2, 2}).contiguous().data<float>()[17] == 1);
}
