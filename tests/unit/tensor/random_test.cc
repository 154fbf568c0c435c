#include "worker/tensor/random.h"

#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("the generator is Philox4x32-10") {
  // The first are the authors' known answers (Random123, kat_vectors); the second were worked out from the paper.
  Generator zero(0);
  for (std::uint32_t expected : {0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U})
    CHECK(zero.next_u32() == expected);
  Generator other(Generator::State{0x299f31d0a4093822, 0x0370734413198a2e, 0x05a308d3243f6a88 * 4});
  for (std::uint32_t expected : {0x2fe11a02U, 0x572a2f27U, 0x2f88763bU, 0x78d5e325U})
    CHECK(other.next_u32() == expected);
}

TEST_CASE("a saved state goes on where it was") {
  Generator original(3, 4);
  for (int i = 0; i < 7; ++i) original.next_u32();
  Generator restored(original.state());
  for (int i = 0; i < 9; ++i) CHECK(original.next_u32() == restored.next_u32());
  CHECK(original.state() == restored.state());
}

TEST_CASE("streams and seeds differ") {
  CHECK(Generator(1, 0).next_u64() != Generator(1, 1).next_u64());
  CHECK(Generator(1, 0).next_u64() != Generator(2, 0).next_u64());
}

TEST_CASE("distributions have the moments they should") {
  Generator generator(5);
  Tensor uniform = Tensor::empty({100000}, DType::float64), normal = Tensor::empty({100000}, DType::float64);
  fill_uniform(uniform, -1, 3, generator);
  fill_normal(normal, 2, 0.5, generator);
  double sum = 0, low = 9, high = -9, mean = 0, square = 0;
  for (int i = 0; i < 100000; ++i) {
    sum += uniform.data<double>()[i];
    low = std::min(low, uniform.data<double>()[i]);
    high = std::max(high, uniform.data<double>()[i]);
    mean += normal.data<double>()[i] / 100000;
    square += (normal.data<double>()[i] - 2) * (normal.data<double>()[i] - 2) / 100000;
  }
  CHECK(sum / 100000 == Approx(1).margin(0.02));
  CHECK(low >= -1);
  CHECK(high < 3);
  CHECK(high - low > 3.99);
  CHECK(mean == Approx(2).margin(0.01));
  CHECK(square == Approx(0.25).margin(0.005));
}

TEST_CASE("below stays below and reaches everything") {
  Generator generator(6);
  std::vector<int> counts(7);
  for (int i = 0; i < 7000; ++i) ++counts.at(generator.below(7));
  for (int count : counts) CHECK(std::abs(count - 1000) < 150);
}
