#include "worker/data/random_tensors.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::data;

namespace {

struct Sample {
  std::vector<float> x;
  std::vector<float> y;
};

Sample read(const RandomTensors& set, std::int64_t index) {
  Sample s;
  s.x.resize(set.layout().input_bytes() / sizeof(float));
  s.y.resize(set.layout().target_bytes() / sizeof(float));
  set.read(index, std::as_writable_bytes(std::span(s.x)), std::as_writable_bytes(std::span(s.y)));
  return s;
}

}  // namespace

TEST_CASE("both splits follow one linear rule") {
  const RandomTensors train({.input_shape = {1}, .outputs = 1, .seed = 4});
  const RandomTensors test({.input_shape = {1}, .outputs = 1, .seed = 4, .split = Split::test});
  const auto a = read(train, 0);
  const auto b = read(train, 1);
  const float slope = (a.y[0] - b.y[0]) / (a.x[0] - b.x[0]);
  const float offset = a.y[0] - slope * a.x[0];
  for (std::int64_t i = 0; i < 20; ++i) {
    const auto s = read(test, i);
    CHECK(s.x != read(train, i).x);
    CHECK(s.y[0] == Approx(slope * s.x[0] + offset).margin(1e-4));
  }
}

TEST_CASE("labels are the largest output, and all occur") {
  const RandomTensors numbers({.input_shape = {4, 4}, .outputs = 3, .seed = 9});
  const RandomTensors labels({.input_shape = {4, 4}, .outputs = 3, .labels = true, .seed = 9});
  CHECK(labels.layout().classes == 3);
  CHECK(labels.layout().target_shape.empty());
  std::vector<int> count(3);
  for (std::int64_t i = 0; i < 200; ++i) {
    const auto y = read(numbers, i).y;
    std::vector<float> x(16);
    std::int64_t label = -1;
    labels.read(i, std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(&label, 1)));
    CHECK(label == std::max_element(y.begin(), y.end()) - y.begin());
    ++count[static_cast<std::size_t>(label)];
  }
  for (const auto n : count) CHECK(n > 10);
}

TEST_CASE("inputs are standard normal, noise widens the targets") {
  const RandomTensors clean({.size = 1, .input_shape = {5000}, .seed = 1});
  const auto s = read(clean, 0);
  double sum = 0;
  double squares = 0;
  for (const double x : s.x) {
    sum += x;
    squares += x * x;
  }
  CHECK(sum / 5000 == Approx(0).margin(0.06));
  CHECK(squares / 5000 == Approx(1).margin(0.08));
  const RandomTensors noisy({.size = 1, .input_shape = {5000}, .noise = 1.0F, .seed = 1});
  CHECK(read(noisy, 0).x == s.x);
  CHECK(read(noisy, 0).y != s.y);
}
