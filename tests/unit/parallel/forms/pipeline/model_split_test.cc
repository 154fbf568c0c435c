#include "worker/parallel/forms/pipeline/model_split.h"

#include <numeric>

#include "worker/autograd/function.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/optim/optimizer.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const Device first = parse_device("cpu:0"), second = parse_device("cpu:1");

std::unique_ptr<nn::Module> make(const std::string& name) {
  Generator generator(1);
  return nn::make_model(name, {.input = {1, 28, 28}, .outputs = 10}, generator);
}

// Returns the parameters after three steps of a model, and the result of the last one.
std::vector<Tensor> learn(nn::Module& model) {
  const auto optimizer = optim::make_optimizer("adam", {}, model.named_parameters());
  std::vector<Tensor> all;
  for (std::uint64_t step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    const Variable result = model(Variable(random_tensor({4, 1, 28, 28}, step)));
    sum(mul(result, result)).backward();
    optimizer->step();
    all = {result.value()};
  }
  for (const auto& [name, parameter] : model.named_parameters()) all.push_back(parameter.value());
  for (const auto& [name, buffer] : model.named_buffers()) all.push_back(buffer);
  return all;
}

double largest_part(const std::vector<double>& costs, std::vector<std::size_t> cuts) {
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(costs.size());
  double largest = 0;
  for (std::size_t i = 1; i < cuts.size(); ++i)
    largest = std::max(largest, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(cuts[i - 1]),
                                                costs.begin() + static_cast<std::ptrdiff_t>(cuts[i]), 0.0));
  return largest;
}

// Returns the smallest cost, found by trying all cuts.
double best_by_trying(const std::vector<double>& costs, std::size_t parts, std::vector<std::size_t> cuts = {}) {
  if (cuts.size() + 1 == parts) return largest_part(costs, cuts);
  double best = 1e300;
  for (std::size_t at = cuts.empty() ? 1 : cuts.back() + 1; at < costs.size(); ++at) {
    auto more = cuts;
    more.push_back(at);
    best = std::min(best, best_by_trying(costs, parts, more));
  }
  return best;
}

}  // namespace

TEST_CASE("a model on two devices learns with the bits of one") {
  for (const auto& [name, cut] : {std::pair("two_part_resnet", "part2"), std::pair("cnn", "fc1")}) {
    const auto whole = make(name), split = make(name);
    split_model(*split, {cut}, {first, second});
    CHECK(split->named_parameters().front().second.device() == first);
    CHECK(split->named_parameters().back().second.device() == second);
    const auto expected = learn(*whole), found = learn(*split);
    REQUIRE(found.size() == expected.size());
    CHECK(found[0].device() == first);
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(same_bits(found[i].to(first), expected[i]));
  }
}

TEST_CASE("a part that was moved without its inputs is an error that names both devices and the module") {
  const auto model = make("two_part_resnet");
  model->module("part2").to(second);
  CHECK_THROWS_WITH((*model)(Variable(random_tensor({2, 1, 28, 28}, 1))),
                    Catch::Contains("cpu:0") && Catch::Contains("cpu:1") && Catch::Contains("part2.conv"));
}

TEST_CASE("a module that is not there, or out of order, and a shared parameter are refused") {
  const auto model = make("two_part_resnet");
  CHECK_THROWS_WITH(split_model(*model, {"part3"}, {first, second}), Catch::Contains("they are: part1, part2"));
  CHECK_THROWS_WITH(split_model(*model, {"part2", "part1"}, {first, second, first}), Catch::Contains("out of order"));
  struct Tied : nn::Module {
    Tied() {
      Generator generator(1);
      auto& a = register_module("a", std::make_unique<nn::Linear>(3, 3, generator));
      auto& b = register_module("b", std::make_unique<Shared>());
      b.tie(a.parameter("weight"));
    }
    struct Shared : nn::Module {
      void tie(const Variable& weight) { register_parameter("weight", weight); }
    };
  } tied;
  CHECK_THROWS_WITH(split_model(tied, {"b"}, {first, second}), Catch::Contains("a.weight is shared"));
}

TEST_CASE("costs are cut so that the largest part is as small as it can be") {
  Generator random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> costs(2 + random.next_u64() % 7);
    for (double& cost : costs) cost = static_cast<double>(random.next_u64() % 10);
    const std::size_t parts = 1 + random.next_u64() % costs.size();
    const auto cuts = cut_evenly(costs, parts);
    REQUIRE(cuts.size() == parts - 1);
    for (std::size_t c = 1; c < cuts.size(); ++c) CHECK(cuts[c - 1] < cuts[c]);
    CHECK(largest_part(costs, cuts) == best_by_trying(costs, parts));
  }
  CHECK(cut_evenly({5, 1, 1, 1, 1, 1}, 2) == std::vector<std::size_t>{1});
}
