#include "worker/autograd/cast_place.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/autograd/autocast.h"
#include "worker/autograd/node.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::autograd;

namespace {

// A leaf of four elements, and the memory of its copy with as much behind it.
struct Leaf {
  Leaf() { Access::leaf(variable).lock()->cast_place = place; }

  bool uses(const Tensor& copy) const { return copy.raw() == memory->data(); }
  bool is_untouched_behind() const {
    return std::vector<std::uint16_t>(memory->begin() + 4, memory->end()) == std::vector<std::uint16_t>(16, 7);
  }

  std::shared_ptr<std::vector<std::uint16_t>> memory = std::make_shared<std::vector<std::uint16_t>>(20, 7);
  std::shared_ptr<CastPlace> place = std::make_shared<CastPlace>(std::shared_ptr<void>(memory, memory->data()));
  Variable variable{Tensor::from<float>({1, 2, 3, 4}, {4}), true};
};

std::vector<float> values(const Tensor& copy) {
  const Tensor wide = copy.to(DType::float32);
  return {wide.data<float>(), wide.data<float>() + wide.numel()};
}

}  // namespace

TEST_CASE("the 16-bit copy of a leaf with a place is there, and follows the leaf's contents") {
  Leaf leaf;
  const AutocastScope scope(DType::bfloat16);
  const Tensor copy = cast(leaf.variable, DType::bfloat16).value();
  CHECK(leaf.uses(copy));
  CHECK(values(copy) == std::vector<float>{1, 2, 3, 4});

  leaf.variable.set_value(Tensor::from<float>({5, 6, 7, 8}, {4}));
  CHECK(values(cast(leaf.variable, DType::bfloat16).value()) == std::vector<float>{5, 6, 7, 8});
  Tensor contents = leaf.variable.value();
  contents.data<float>()[0] = 9;
  contents.storage()->bump_version();
  CHECK(values(cast(leaf.variable, DType::float16).value()) == std::vector<float>{9, 6, 7, 8});
  CHECK(leaf.is_untouched_behind());
}

TEST_CASE("a copy that is wider than 16 bits has memory of its own") {
  const Leaf leaf;
  const AutocastScope scope(DType::bfloat16);
  CHECK_FALSE(leaf.uses(cast(leaf.variable, DType::float64).value()));
  CHECK(leaf.is_untouched_behind());
  CHECK(leaf.place->bytes() == 0);
}

TEST_CASE("a copy that was taken away is made again at its address, if it is still used") {
  Leaf leaf;
  Tensor copy = leaf.place->cast(leaf.variable.value(), DType::bfloat16);
  const auto version = copy.version();
  leaf.place->take_away();
  CHECK(leaf.place->bytes() == 0);
  CHECK_FALSE(copy.storage()->is_present());
  std::fill(leaf.memory->begin(), leaf.memory->begin() + 4, std::uint16_t{0});

  leaf.place->bring_back(leaf.variable.value());
  CHECK(copy.storage()->is_present());
  CHECK(values(copy) == std::vector<float>{1, 2, 3, 4});
  CHECK(copy.version() == version);
  CHECK(leaf.place->bytes() == 8);

  leaf.place->take_away();
  copy = Tensor();
  leaf.place->bring_back(leaf.variable.value());
  CHECK(leaf.place->bytes() == 0);
}
