// Training in 16 bits: the loss scale, skipped steps, and the state of both that a run needs to resume.
#include <cmath>
#include <limits>

#include "worker/autograd/ops/elementwise.h"
#include "worker/trainer/session/replicas.h"
#include "tests/support/catch.h"
#include "tests/support/step_records.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/records.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::string job_text =
    "[model]\nname = mlp\nhidden = 8 5\ndropout = 0.2\n[data]\nname = random\nlabels = true\noutputs = 3\nsamples = "
    "100\ntest_samples = 10\n[train]\nepochs = 3\nbatch_size = 8\n";

// The gradient of one call is too large for float16, its loss is finite.
class PlantedInfinity : public tasks::Task {
 public:
  PlantedInfinity(const tasks::Task& task, int call) : task_(task), call_(call) {}
  std::int64_t outputs() const override { return task_.outputs(); }
  tasks::WeightedLoss loss(const tasks::Forward& model, const data::Batch& batch) const override {
    auto result = task_.loss(model, batch);
    if (calls_++ == call_) result.loss = mul(mul(result.loss, 1e-30), 1e37);
    return result;
  }

 private:
  const tasks::Task& task_;
  const int call_;
  mutable int calls_ = 0;
};

struct Step {
  bool skipped;
  double scale;
  std::int64_t optimizer_steps;
  std::string digest;
  friend bool operator==(const Step&, const Step&) = default;
};

// Returns six steps of two ranks; at rank 1 the gradient of the third is infinite.
std::vector<std::vector<Step>> steps_with_an_infinity(const TrainingJob& job) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int rank = 0; rank < 2; ++rank) replicas.push_back(std::make_unique<Replica>(job));
  std::vector<std::vector<Step>> steps(2);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Replica& replica = *replicas[rank];
    const PlantedInfinity task(*replica.task, rank == 1 ? 2 : -1);
    trainer::TrainSession session({.config = replica.config, .datasets = replica.datasets, .task = task}, replica.state,
                                  group);
    for (int i = 0; i < 6; ++i) {
      const auto result = session.step(false);
      steps[rank].push_back({result.skipped, result.loss_scale.value_or(0), replica.state.optimizer->step_count(),
                             trainer::parameter_digest(*replica.state.model)});
    }
  });
  return steps;
}

}  // namespace

TEST_CASE("an infinity at one rank skips the step at all ranks, and lowers the scale") {
  const TrainingJob job(job_text + "precision = fp16\nloss_scale = 256\n[optim]\nclip_norm = 1\n");
  const auto steps = steps_with_an_infinity(job);
  CHECK(steps[0] == steps[1]);
  for (std::size_t i = 0; i < 6; ++i) {
    INFO("step " << i + 1);
    CHECK(steps[0][i].skipped == (i == 2));
    CHECK(steps[0][i].scale == (i <= 2 ? 256 : 128));
    CHECK(steps[0][i].optimizer_steps == static_cast<std::int64_t>(i < 2 ? i + 1 : i));
    if (i > 0) CHECK((steps[0][i].digest == steps[0][i - 1].digest) == (i == 2));
  }
}

TEST_CASE("the scale has no effect on gradients that are clipped") {
  const auto norms = [](const std::string& scale) {
    const TrainingJob job(job_text + "precision = fp16\nloss_scale = " + scale + "\n[optim]\nclip_norm = 0.01\n");
    Replica replica(job);
    std::vector<double> all;
    run_ranks(1, [&](ProcessGroup& group) {
      const auto session = replica.session(group);
      for (int i = 0; i < 3; ++i) all.push_back(session->step(false).grad_norm.value());
    });
    return all;
  };
  const auto small = norms("64"), large = norms("4096");
  for (std::size_t i = 0; i < 3; ++i) CHECK(small[i] == Approx(large[i]).epsilon(0.01));
}

TEST_CASE("a run in fp16 has the same bits twice, and when it stops and goes on, skipped steps included") {
  // The first scales are too large for float16; later the scale grows every three steps and is too large again.
  const auto run = [](const TempDir& dir, int steps) {
    TrainingJob job(job_text + "precision = fp16\nloss_scale = 1e7\nloss_scale_growth_interval = 3\nmax_steps = " +
                    std::to_string(steps) + "\n[optim]\nlr = 0.01\n[checkpoint]\ndir = " +
                    (dir / "checkpoints").string() + "\n[metrics]\nfile = " + (dir / "metrics").string() + "\n");
    return job.run(2)[0].parameter_digest;
  };
  const TempDir undisturbed, again, stopped;
  const auto expected = run(undisturbed, 21);
  const auto records = step_records(undisturbed / "metrics");
  REQUIRE(records.size() == 21);
  CHECK(records[0].at("loss_scale").to_number<double>() == 1e7);
  const auto skipped = records.back().at("skipped_steps").as_int64();
  CHECK(skipped > records[5].at("skipped_steps").as_int64());
  CHECK(skipped < 15);
  CHECK(run(again, 21) == expected);
  for (const int steps : {1, 2, 9, 14}) run(stopped, steps);
  CHECK(run(stopped, 21) == expected);
  const auto resumed = step_records(stopped / "metrics");
  REQUIRE(resumed.size() == 21);
  for (std::size_t i = 0; i < records.size(); ++i)
    for (const char* key : {"loss", "loss_scale", "skipped_steps"}) CHECK(resumed[i].at(key) == records[i].at(key));
}

TEST_CASE("data_parallel in 16 bits trains as one model does, and skips the same steps") {
  for (const std::string precision : {"bf16", "fp16\nloss_scale = 1e7\nloss_scale_growth_interval = 3"}) {
    INFO(precision);
    const auto run = [&](const TempDir& dir, const std::string& more) {
      TrainingJob job(job_text + "max_steps = 21\nprecision = " + precision +
                      "\n[optim]\nlr = 0.01\n[metrics]\nfile = " + (dir / "metrics").string() + "\n" + more);
      return job.run(1)[0].parameter_digest;
    };
    const TempDir whole, one, three;
    const auto expected = run(whole, "");
    CHECK(run(one, "[parallel]\nstrategy = data_parallel\ndevices = cpu:0\n") == expected);
    run(three, "[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cpu:1 cpu:2\n");
    const auto losses = read_records(whole / "metrics").losses;
    CHECK(read_records(one / "metrics").losses == losses);
    CHECK(largest_difference(losses, read_records(three / "metrics").losses, 21) < 1e-6);
    if (precision == "bf16") continue;
    const auto records = step_records(whole / "metrics"), divided = step_records(three / "metrics");
    CHECK(records.back().at("skipped_steps").as_int64() > 3);
    for (std::size_t i = 0; i < records.size(); ++i)
      CHECK(divided[i].at("skipped_steps") == records[i].at("skipped_steps"));
  }
}

TEST_CASE("a loss scale that never gets small enough stops the run") {
  // The loss has no bound: its parameters overflow float16 and stay there.
  TrainingJob job(
      "[model]\nname = linear\n[data]\nname = random\nsamples = 1000\ntest_samples = 10\n[train]\nbatch_size = 4\n"
      "precision = fp16\n[optim]\nname = sgd\nlr = 1e7\n");
  CHECK_THROWS_WITH(job.run(1), Catch::Contains("the gradient of step") && Catch::Contains("training has diverged"));
}

TEST_CASE("bf16 and fp32 have no loss scale") {
  for (const char* precision : {"fp32", "bf16"}) {
    const TempDir dir;
    TrainingJob job(job_text + "max_steps = 2\nprecision = " + precision +
                    "\n[metrics]\nfile = " + (dir / "metrics").string() + "\n");
    job.run(1);
    CHECK_FALSE(step_records(dir / "metrics")[0].contains("loss_scale"));
  }
}

TEST_CASE("parameters, gradients and the optimizer stay float32 whatever the precision") {
  for (const char* precision : {"bf16", "fp16"}) {
    const TrainingJob job(job_text + "precision = " + precision + "\n");
    Replica replica(job);
    run_ranks(1, [&](ProcessGroup& group) {
      const auto session = replica.session(group);
      session->step(false);
      session->evaluate();
      for (const auto& [name, parameter] : replica.state.model->named_parameters())
        if (parameter.dtype() != DType::float32 || parameter.grad().dtype() != DType::float32)
          throw std::runtime_error(name);
      for (const auto& [name, tensor] : replica.state.optimizer->state())
        if (tensor.dtype() != DType::float32) throw std::runtime_error(name);
    });
  }
}
