#include "worker/data/patterns.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/data/images_support.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

TEST_CASE("a pattern is a pure function of seed, split and index") {
  const auto a = draw_pattern(1, Split::train, 7);
  CHECK(a.levels == draw_pattern(1, Split::train, 7).levels);
  CHECK(a.levels != draw_pattern(2, Split::train, 7).levels);
  CHECK(a.levels != draw_pattern(1, Split::test, 7).levels);
  CHECK(a.levels != draw_pattern(1, Split::train, 8).levels);
}

TEST_CASE("generated images have the form of CIFAR-10, and classes that come about equally often") {
  const PatternsDataset set({.size = 1000});
  CHECK(set.layout().input_shape == std::vector<std::int64_t>{3, 32, 32});
  CHECK(set.layout().classes == 10);
  std::vector<int> count(10);
  for (std::int64_t i = 0; i < set.size(); ++i) ++count[static_cast<std::size_t>(read_image(set, i).label)];
  for (const auto n : count) CHECK(n > 60);
  CHECK(read_image(set, 5) == read_image(PatternsDataset({.size = 6}), 5));
}

// The mean of a class therefore does not identify it.
TEST_CASE("the classes of generated images have the same mean") {
  std::vector<std::vector<double>> sums(10, std::vector<double>(cifar_levels));
  std::vector<int> count(10);
  for (std::int64_t i = 0; i < 4000; ++i) {
    const auto pattern = draw_pattern(0, Split::train, i);
    const auto label = static_cast<std::size_t>(pattern.label);
    ++count[label];
    for (std::size_t at = 0; at < cifar_levels; ++at) sums[label][at] += pattern.levels[at];
  }
  for (std::size_t label = 0; label < 10; ++label) {
    double squares = 0;
    for (const double sum : sums[label]) squares += std::pow(sum / count[label] - 127.5, 2);
    // The expected value is about 2.5 with 400 samples; waves and discs at one place would make it up to 15.
    CHECK(std::sqrt(squares / cifar_levels) < 5);
  }
}
