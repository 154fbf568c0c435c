#include "ddprun/worker/trainer/replicas.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/parallel/distributed_data_parallel.h"
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

TEST_CASE("replicas that agree pass, and one that strayed is named at every rank") {
  testing::run_ranks(3, [](ProcessGroup& group) {
    const auto own = model(1);
    DistributedDataParallel ddp(*own, group);
    check_replicas([&](const auto& visitor) { ddp.visit_parameters(visitor); }, group, 5);
  });
  int complaints = 0;
  std::mutex mutex;
  testing::run_ranks(3, [&](ProcessGroup& group) {
    const auto own = model(1);
    DistributedDataParallel ddp(*own, group);
    if (group.rank() == 2) {
      auto bias = own->named_parameters()[1].second.value();
      static_cast<std::uint8_t*>(bias.raw())[0] ^= 1;
    }
    try {
      check_replicas([&](const auto& visitor) { ddp.visit_parameters(visitor); }, group, 5);
    } catch (const Error& e) {
      const std::lock_guard lock(mutex);
      complaints +=
          e.code() == Errc::mismatch &&
          std::string(e.what()) == "after step 5 the parameters of rank 2 differ from rank 0's, first in fc1.bias";
    }
  });
  CHECK(complaints == 3);
}
