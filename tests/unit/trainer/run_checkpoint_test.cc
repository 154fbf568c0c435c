#include "ddprun/worker/trainer/run_checkpoint.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/local/self_group.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/trainer/replicas.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

namespace {

struct Learner {
  explicit Learner(std::uint64_t seed, std::vector<std::int64_t> hidden = {3}, const char* optimizer_name = "adam") {
    Generator generator(seed);
    model = nn::make_model("mlp", {.input = {4}, .outputs = 2, .hidden = std::move(hidden)}, generator);
    optimizer = optim::make_optimizer(optimizer_name, {}, model->named_parameters());
    for (auto [name, tensor] : optimizer->state()) tensor.fill(static_cast<double>(seed));
  }
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
};

void save(const TempDir& dir, const Learner& learner, std::int64_t step) {
  checkpoint::Checkpoints({.folder = dir.path()})
      .save(content_of(*learner.model, *learner.optimizer, {.step = step, .seed = 9}));
}

std::string error_of(const TempDir& dir, Learner learner) {
  const checkpoint::Checkpoints checkpoints({.folder = dir.path()});
  try {
    resume(&checkpoints, *learner.model, *learner.optimizer, *comm::make_self_group());
  } catch (const Error& e) {
    CHECK(e.code() == Errc::mismatch);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("what rank 0 saved is at every rank after resume") {
  TempDir dir;
  const Learner saved(7);
  save(dir, saved, 12);
  testing::run_ranks(3, [&](ProcessGroup& group) {
    const checkpoint::Checkpoints checkpoints({.folder = dir.path()});
    Learner learner(100 + static_cast<std::uint64_t>(group.rank()));
    const auto state = resume(group.rank() == 0 ? &checkpoints : nullptr, *learner.model, *learner.optimizer, group);
    if (!state || state->step != 12 || state->seed != 9) throw std::runtime_error("wrong state");
    if (parameter_digest(*learner.model) != parameter_digest(*saved.model)) throw std::runtime_error("wrong weights");
    if (learner.optimizer->step_count() != 12) throw std::runtime_error("wrong step count");
    for (const auto& [name, tensor] : learner.optimizer->state()) {
      for (std::int64_t i = 0; i < tensor.numel(); ++i) {
        if (tensor.data<float>()[i] != 7.0F) throw std::runtime_error("wrong optimizer state " + name);
      }
    }
  });
}

TEST_CASE("without a checkpoint every rank starts afresh") {
  TempDir dir;
  testing::run_ranks(2, [&](ProcessGroup& group) {
    const checkpoint::Checkpoints checkpoints({.folder = dir / "none"});
    Learner learner(1);
    if (resume(group.rank() == 0 ? &checkpoints : nullptr, *learner.model, *learner.optimizer, group))
      throw std::runtime_error("found something");
  });
}

TEST_CASE("a checkpoint of another model is refused, naming the tensor") {
  TempDir dir;
  save(dir, Learner(1), 3);
  const auto file = (dir / "step_000003/model.safetensors").string();
  CHECK(error_of(dir, Learner(1)) == "no error");
  CHECK(error_of(dir, Learner(1, {5})) ==
        file + ": tensor fc1.weight is float32 [3, 4], this run needs float32 [5, 4]");
  CHECK(error_of(dir, Learner(1, {3, 3})) == file + " holds 4 tensors, this run has 6");
  CHECK_THAT(error_of(dir, Learner(1, {3}, "sgd")), Catch::Contains("optimizer.safetensors holds 8 tensors"));
}
