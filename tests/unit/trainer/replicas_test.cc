#include "worker/trainer/session/replicas.h"

#include <algorithm>

#include "common/error.h"
#include "common/host_port.h"
#include "worker/nn/models.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

std::unique_ptr<nn::Module> model(std::uint64_t seed) {
  Generator generator(seed);
  return nn::make_model("mlp", {.input = {4}, .outputs = 2, .hidden = {3}}, generator);
}

}  // namespace

TEST_CASE("equal parameters have equal digests, one flipped bit another") {
  CHECK(parameter_digest(*model(1)) == parameter_digest(*model(1)));
  CHECK(parameter_digest(*model(1)) != parameter_digest(*model(2)));
  const auto changed = model(1);
  auto bias = changed->named_parameters().back().second.value();
  static_cast<std::uint8_t*>(bias.raw())[0] ^= 1;
  CHECK(parameter_digest(*changed) != parameter_digest(*model(1)));
}

namespace {

void flip_a_bit(const Tensor& tensor, std::size_t byte = 0) {
  auto values = tensor;  // a handle on the same elements
  static_cast<std::uint8_t*>(values.raw())[byte] ^= 1;
}

// Returns the errors of each rank's check of its model where these ranks have flipped a bit of parameter i.
std::vector<std::string> errors_of(int ranks, const std::vector<int>& flipped, std::size_t parameter,
                                   ReplicaRange range = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks, [&](ProcessGroup& group) {
    const auto own = model(1);
    const auto parameters = own->named_parameters();
    if (std::ranges::count(flipped, group.rank()) > 0) flip_a_bit(parameters[parameter].second.value(), group.rank());
    const auto visit = [&](const ReplicaVisitor& visitor) {
      for (const auto& [name, each] : parameters) visitor(group, name, each.value());
    };
    try {
      check_replicas(visit, group.rank(), 5, range);
    } catch (const Error& e) {
      errors[static_cast<std::size_t>(group.rank())] =
          (e.code() == Errc::mismatch ? "mismatch: " : "") + std::string(e.what());
    }
  });
  return errors;
}

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank) + " on host " + local_host_name();
}

}  // namespace

TEST_CASE("replicas that agree pass, and one that strayed is outvoted and named at every rank") {
  for (const auto& error : errors_of(3, {}, 0)) CHECK(error.empty());
  for (const int bad : {0, 2}) {
    for (const auto& error : errors_of(3, {bad}, 1))
      CHECK(error == "mismatch: after step 5 the parameters of " + rank_text(bad) +
                         " differ from those of 2 other ranks, first in fc1.bias: silent data corruption");
  }
  for (const auto& error : errors_of(5, {1, 3}, 3))
    CHECK(error == "mismatch: after step 5 the parameters of " + rank_text(1) + " and " + rank_text(3) +
                       " differ from those of 3 other ranks, first in fc2.bias: silent data corruption");
}

TEST_CASE("without a majority all replicas are named") {
  for (const auto& error : errors_of(2, {1}, 2))
    CHECK(error == "mismatch: after step 5 the parameters of " + rank_text(0) + " and " + rank_text(1) +
                       " differ, first in fc2.weight: silent data corruption at one of them");
}

TEST_CASE("the majority decides who is outvoted") {
  using Places = std::vector<std::size_t>;
  const auto of = [](const std::vector<std::string>& values) { return outvoted(values); };
  CHECK(of({"a"}).empty());
  CHECK(of({"a", "a", "a"}).empty());
  CHECK(of({"a", "b", "a"}) == Places{1});
  CHECK(of({"a", "b", "b"}) == Places{0});
  CHECK(of({"a", "b"}) == Places{0, 1});
  CHECK(of({"a", "b", "b", "a"}) == Places{0, 1, 2, 3});
  CHECK(of({"a", "b", "c"}) == Places{0, 1, 2});
}

TEST_CASE("a range of the parameters is compared at a time, and all ranges are all of them") {
  // There are 23 values of 4 bytes: 12 weights, 3 biases, 6 weights, 2 biases.
  for (const std::size_t parameter : {0, 1, 2, 3}) {
    int found = 0;
    for (std::int64_t index = 0; index < 10; ++index)
      found += errors_of(3, {2}, parameter, {.index = index, .ranges = 10})[0].empty() ? 0 : 1;
    CHECK(found == 1);
  }
}

TEST_CASE("the digest at the end is every replica's") {
  for (const bool differs : {false, true}) {
    std::vector<std::string> errors(3);
    testing::run_ranks(3, [&](ProcessGroup& group) {
      try {
        check_digest(differs && group.rank() == 1 ? std::string(64, 'b') : std::string(64, 'a'), group);
      } catch (const Error& e) {
        errors[static_cast<std::size_t>(group.rank())] = e.what();
      }
    });
    for (const auto& error : errors)
      CHECK(error == (differs ? "at the end the parameters of " + rank_text(1) +
                                    " differ from those of 2 other ranks: silent data corruption"
                              : ""));
  }
}
