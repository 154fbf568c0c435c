#include "ddprun/worker/tensor/tensor.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/storage.h"
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
  CHECK_THROWS_WITH(floats.to(DType::float16), Catch::Contains("float16"));
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
