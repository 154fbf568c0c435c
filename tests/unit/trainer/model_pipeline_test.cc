#include "worker/trainer/session/model_pipeline.h"

#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

TEST_CASE("no layers are measured where a rank knows their times from an earlier group") {
  const TrainingJob job(
      "[model]\nname = mlp\nhidden = 8 8\n[data]\nname = digits\nsamples = 16\ntest_samples = 8\n"
      "[train]\nbatch_size = 4\n[parallel]\npipeline = 2\nmicro_batches = 2\n");
  std::vector<std::vector<double>> seconds(2), of_layers(2);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const Replica replica(job);
    if (rank == 1) seconds[rank] = {3, 1, 2};
    const Tensor none;  // passes of it fail
    for (const auto& layer : measured_layers(replica.config, *replica.state.model, none, seconds[rank], group))
      of_layers[rank].push_back(layer.seconds);
  });
  for (const auto* each : {&seconds, &of_layers})
    CHECK(*each == std::vector<std::vector<double>>(2, std::vector<double>{3, 1, 2}));
}
