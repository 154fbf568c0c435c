#include "worker/data/digits.h"

#include <set>
#include <thread>

#include "worker/digest/sha256.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::data;

namespace {

std::vector<std::byte> read(const Dataset& set, std::int64_t index) {
  std::vector<std::byte> sample(set.layout().input_bytes() + sizeof(std::int64_t));
  const std::span all(sample);
  set.read(index, all.first(set.layout().input_bytes()), all.last(sizeof(std::int64_t)));
  return sample;
}

}  // namespace

TEST_CASE("a digit is a pure function of seed, split and index") {
  const auto a = draw_digit(1, Split::train, 7);
  CHECK(a.levels == draw_digit(1, Split::train, 7).levels);
  CHECK(a.levels != draw_digit(2, Split::train, 7).levels);
  CHECK(a.levels != draw_digit(1, Split::test, 7).levels);
  CHECK(a.levels != draw_digit(1, Split::train, 8).levels);
}

TEST_CASE("all ten digits come about equally often, in ink on a dark ground") {
  std::vector<int> count(10);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const auto digit = draw_digit(0, Split::train, i);
    ++count[static_cast<std::size_t>(digit.label)];
    const auto bright = std::count_if(digit.levels.begin(), digit.levels.end(), [](int level) { return level > 150; });
    CHECK(bright > 10);
    CHECK(bright < 784 / 2);
  }
  for (const auto n : count) CHECK(n > 60);
}

TEST_CASE("reading keeps a digit as it was drawn, whichever thread reads first") {
  const DigitsDataset set({.size = 64, .seed = 3});
  std::vector<std::vector<std::byte>> expected;
  for (std::int64_t i = 0; i < set.size(); ++i) expected.push_back(read(DigitsDataset({.size = 64, .seed = 3}), i));
  std::vector<int> wrong(4);
  std::vector<std::jthread> threads;
  for (auto& w : wrong) {
    threads.emplace_back([&] {
      for (std::int64_t i = 0; i < set.size(); ++i) w += read(set, i) != expected[static_cast<std::size_t>(i)];
    });
  }
  threads.clear();
  CHECK(wrong == std::vector<int>(4));
}
