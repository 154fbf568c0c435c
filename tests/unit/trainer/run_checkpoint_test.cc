#include "worker/trainer/state/run_checkpoint.h"

#include <set>

#include "common/error.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/nn/models.h"
#include "worker/parallel/group_tensors.h"
#include "worker/trainer/session/replicas.h"
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

using NamedSettings = std::map<std::string, std::string>;
const NamedSettings no_settings;

void save(const TempDir& dir, const Learner& learner, std::int64_t step, const NamedSettings& settings = {}) {
  checkpoint::Checkpoints({.folder = dir.path()})
      .save(content_of({tensors_of(*learner.model), learner.optimizer->state()},
                       {.step = step, .seed = 9, .config = settings}));
}

std::string error_of(const TempDir& dir, Learner learner, const NamedSettings& settings = {}) {
  checkpoint::Checkpoints checkpoints({.folder = dir.path()});
  try {
    resume({.checkpoints = &checkpoints, .settings = settings},
           {tensors_of(*learner.model), learner.optimizer->state()}, *comm::make_self_group());
  } catch (const Error& e) {
    CHECK(e.code() == Errc::mismatch);
    return e.what();
  }
  return "no error";
}

// Returns the step that a run starts from, or why it does not start.
std::string start_of(const TempDir& dir, Resume how) {
  checkpoint::Checkpoints checkpoints({.folder = dir.path()});
  Learner learner(1);
  try {
    const auto state = resume({.checkpoints = &checkpoints, .resume = how, .settings = no_settings},
                              {tensors_of(*learner.model), learner.optimizer->state()}, *comm::make_self_group());
    return state ? std::to_string(state->step) : "0";
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
}

}  // namespace

TEST_CASE("what rank 0 saved is at every rank after resume") {
  TempDir dir;
  const Learner saved(7);
  save(dir, saved, 12);
  testing::run_ranks(3, [&](ProcessGroup& group) {
    checkpoint::Checkpoints checkpoints({.folder = dir.path()});
    Learner learner(100 + static_cast<std::uint64_t>(group.rank()));
    const auto state = resume({.checkpoints = &checkpoints, .settings = no_settings},
                              {tensors_of(*learner.model), learner.optimizer->state()}, group);
    optim::NamedTensors parameters;
    for (const auto& [name, parameter] : learner.model->named_parameters())
      parameters.emplace_back(name, parameter.value());
    broadcast(group, references(parameters));
    broadcast(group, references(learner.optimizer->state()));
    if (!state || state->step != 12 || state->seed != 9) throw std::runtime_error("wrong state");
    if (parameter_digest(*learner.model) != parameter_digest(*saved.model)) throw std::runtime_error("wrong weights");
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
    checkpoint::Checkpoints checkpoints({.folder = dir / "none"});
    Learner learner(1);
    if (resume({.checkpoints = &checkpoints, .settings = no_settings},
               {tensors_of(*learner.model), learner.optimizer->state()}, group))
      throw std::runtime_error("found something");
  });
}

TEST_CASE("a position beyond the data set is refused, unless its settings have changed") {
  TempDir dir;
  const Learner learner(1);
  const NamedSettings settings{{"data.samples", "100"}, {"optim.lr", "0.1"}};
  checkpoint::Checkpoints checkpoints({.folder = dir.path()});
  checkpoints.save(content_of({tensors_of(*learner.model), learner.optimizer->state()},
                              {.step = 12, .samples = 101, .config = settings}));
  const auto samples_at_resume = [&](const NamedSettings& now, std::int64_t epoch_samples) {
    return resume({.checkpoints = &checkpoints, .settings = now, .epoch_samples = epoch_samples},
                  {tensors_of(*learner.model), learner.optimizer->state()}, *comm::make_self_group())
        ->samples;
  };
  CHECK_THROWS_WITH(samples_at_resume(settings, 100),
                    (dir / "step_000012/state.json").string() +
                        ": member samples is 101, expected at most 100, the samples of an epoch");
  CHECK_THROWS_WITH(samples_at_resume({{"data.samples", "100"}, {"optim.lr", "0.2"}}, 100),
                    Catch::Contains("member samples is 101"));
  CHECK(samples_at_resume(settings, 101) == 101);
  CHECK(samples_at_resume({{"data.samples", "90"}, {"optim.lr", "0.1"}}, 90) == 101);
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

TEST_CASE("a checkpoint of another model or optimizer is refused, naming the settings that have changed") {
  TempDir dir;
  save(dir, Learner(1), 3, {{"optim.name", "adam"}, {"optim.lr", "1"}, {"model.hidden", "3"}});
  const auto folder = (dir / "step_000003").string();
  CHECK(error_of(dir, Learner(1, {3}, "sgd"), {{"optim.name", "sgd"}, {"optim.lr", "2"}, {"model.hidden", "3"}}) ==
        "the checkpoint " + folder + " was made with optim.name = adam, this run has sgd (" + folder +
            "/optimizer.safetensors holds 8 tensors, this run has 0)");
  CHECK_THAT(error_of(dir, Learner(1, {5}), {{"optim.name", "adam"}, {"model.hidden", "5"}}),
             Catch::StartsWith("the checkpoint " + folder + " was made with model.hidden = 3, this run has 5 (") &&
                 Catch::Contains("tensor fc1.weight"));
  CHECK(error_of(dir, Learner(1), {{"optim.name", "adam"}, {"optim.lr", "2"}}) == "no error");
}

TEST_CASE("each size of a model is named when it has changed") {
  const auto key = GENERATE("model.channels", "model.layers", "model.width", "model.context", "model.vocabulary",
                            "model.feedforward", "model.experts");
  TempDir dir;
  save(dir, Learner(1), 3, {{key, "3"}});
  CHECK_THAT(error_of(dir, Learner(1, {5}), {{key, "5"}}),
             Catch::Contains(std::string("was made with ") + key + " = 3, this run has 5"));
}

TEST_CASE("checkpoint.resume decides what a run starts from") {
  TempDir dir;
  CHECK(start_of(dir, Resume::automatic) == "0");
  CHECK(start_of(dir, Resume::never) == "0");
  CHECK(start_of(dir, Resume::require) == "checkpoint.resume = require, but checkpoint.dir holds no checkpoint");
  save(dir, Learner(1), 3);
  CHECK(start_of(dir, Resume::automatic) == "3");
  CHECK(start_of(dir, Resume::never) == "0");
  CHECK(start_of(dir, Resume::require) == "3");
  std::filesystem::remove(dir / "step_000003/manifest.json");
  const auto why = "no checkpoint in " + dir.path().string() + " can be used (1 found)";
  CHECK_THAT(start_of(dir, Resume::automatic), Catch::StartsWith(why));
  CHECK_THAT(start_of(dir, Resume::require), Catch::StartsWith(why));
  CHECK(start_of(dir, Resume::never) == "0");
}

TEST_CASE("checkpoint.resume is read by its name") {
  CHECK(resume_names() == std::vector<std::string>{"auto", "never", "require", "best"});
  CHECK(resume_from_name("auto") == Resume::automatic);
  CHECK(resume_from_name("never") == Resume::never);
  CHECK(resume_from_name("require") == Resume::require);
  CHECK(resume_from_name("best") == Resume::best);
}
