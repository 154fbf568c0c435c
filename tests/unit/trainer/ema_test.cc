// train.ema: the average of the weights, evaluations with it, checkpoints, and the parameters loaded from them.
#include <cmath>
#include <filesystem>
#include <tuple>

#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/trained_model.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensor_files.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::string job_text =
    "[model]\nname = mlp\nhidden = 8 5\n[data]\nname = random\nlabels = true\noutputs = 3\nsamples = 96\ntest_samples "
    "= "
    "30\n[optim]\nlr = 0.05\n[train]\nbatch_size = 8\nepochs = 8\n";

std::string with_checkpoints(const TempDir& dir, int steps, const std::string& more) {
  return job_text + "max_steps = " + std::to_string(steps) + "\n" + more +
         "[checkpoint]\ndir = " + dir.path().string() + "\n";
}

std::vector<float> flat(const optim::NamedTensors& tensors) {
  std::vector<float> all;
  for (const auto& [name, value] : tensors)
    all.insert(all.end(), value.data<float>(), value.data<float>() + value.numel());
  return all;
}

std::vector<float> flat(const nn::Module& model) {
  optim::NamedTensors values;
  for (const auto& [name, parameter] : model.named_parameters()) values.emplace_back(name, parameter.value());
  return flat(values);
}

std::unique_ptr<nn::Module> trained_model(const TrainingJob& job) {
  const auto layout = job.datasets().train->layout();
  return trainer::load_trained_model("predict", job.config(), layout, *trainer::make_task(job.config(), layout), {});
}

}  // namespace

TEST_CASE("train.ema averages the weights of the steps, and evaluations alone use the averages") {
  const TrainingJob job(job_text + "ema = 0.75\n");
  Replica replica(job);
  run_ranks(1, [&](ProcessGroup& group) {
    const auto session = replica.session(group);
    std::vector<double> expected;
    for (int step = 0; step < 6; ++step) {
      session->step(false);
      const auto now = flat(*replica.state.model);
      if (step == 0) expected.assign(now.begin(), now.end());
      for (std::size_t i = 0; i < now.size(); ++i)
        expected[i] = 0.75 * expected[i] + 0.25 * static_cast<double>(now[i]);
    }
    const auto digest = trainer::parameter_digest(*replica.state.model);
    const double averaged = session->evaluate().loss;
    if (trainer::parameter_digest(*replica.state.model) != digest) throw std::runtime_error("the weights have changed");
    std::size_t at = 0, element = 0;
    for (auto [name, parameter] : replica.state.model->named_parameters()) {
      Tensor value = parameter.value();
      const Tensor& average = replica.state.ema->averages()[at++].second;
      for (std::int64_t i = 0; i < value.numel(); ++i)
        if (std::abs(static_cast<double>(average.data<float>()[i]) - expected[element++]) > 1e-6)
          throw std::runtime_error("another average of " + name);
      value.copy_from(average);
    }
    replica.state.ema.reset();
    if (session->evaluate().loss != averaged) throw std::runtime_error("evaluated without the averages");
  });
}

TEST_CASE("a run with train.ema that stops and goes on has the same weights and averages") {
  for (const auto& [ranks, parallel] :
       std::vector<std::pair<int, std::string>>{{2, ""},
                                                {2, "zero = 1\n"},
                                                {3, "zero = 2\n"},
                                                {4, "zero = 3\nshard_group = 2\n"},
                                                {2, "strategy = local_sgd\nlocal_sgd_period = 4\n"},
                                                {2, "strategy = data_parallel\ndevices = cpu:0 cpu:1\n"}}) {
    INFO(parallel);
    const std::string more = "ema = 0.9\n[parallel]\n" + parallel;
    const TempDir whole, stopped;
    const auto expected = TrainingJob(with_checkpoints(whole, 20, more)).run(ranks)[0];
    for (const int steps : {1, 9}) TrainingJob(with_checkpoints(stopped, steps, more)).run(ranks);
    const TrainingJob last(with_checkpoints(stopped, 20, more));
    const auto end = TrainingJob(with_checkpoints(stopped, 20, more)).run(ranks)[0];
    CHECK(end.parameter_digest == expected.parameter_digest);
    CHECK(end.evaluation.loss == expected.evaluation.loss);
    const TrainingJob first(with_checkpoints(whole, 20, more));
    const auto averages = trained_model(first);
    CHECK(flat(*trained_model(last)) == flat(*averages));
    CHECK(trainer::parameter_digest(*averages) != expected.parameter_digest);
    CHECK((tensor_files(whole / "step_000020") == tensor_files(stopped / "step_000020")));
  }
}

TEST_CASE("where ranks have models of their own, the means of their averages are evaluated and saved") {
  const TrainingJob job(job_text + "ema = 0.75\n[parallel]\nstrategy = local_sgd\nlocal_sgd_period = 3\n");
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int rank = 0; rank < 2; ++rank) replicas.push_back(std::make_unique<Replica>(job));
  double evaluated = 0;
  optim::NamedTensors saved;
  run_ranks(2, [&](ProcessGroup& group) {
    auto& replica = *replicas[static_cast<std::size_t>(group.rank())];
    const auto session = replica.session(group);
    for (int step = 0; step < 5; ++step) session->step(false);
    const auto own = trainer::parameter_digest(*replica.state.model);
    const double loss = session->evaluate().loss;
    const auto whole = session->gather_state();
    session->release_whole_state();
    if (trainer::parameter_digest(*replica.state.model) != own) throw std::runtime_error("the weights have changed");
    if (group.rank() > 0) return;
    evaluated = loss;
    saved = whole.averages;
  });
  const auto &first = replicas[0]->state.ema->averages(), &second = replicas[1]->state.ema->averages();
  CHECK(flat(first) != flat(second));
  const TrainingJob one(job_text);
  Replica mean(one);
  auto parameters = mean.state.model->named_parameters();
  REQUIRE(saved.size() == parameters.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    for (std::int64_t at = 0; at < saved[i].second.numel(); ++at) {
      const float *a = first[i].second.data<float>(), *b = second[i].second.data<float>();
      CHECK(saved[i].second.data<float>()[at] == Approx((a[at] + b[at]) / 2).margin(1e-7));
    }
    Tensor value = parameters[i].second.value();
    value.copy_from(saved[i].second);
  }
  double expected = 0;
  run_ranks(1, [&](ProcessGroup& group) { expected = mean.session(group)->evaluate().loss; });
  CHECK(evaluated == Approx(expected));
}

TEST_CASE("averages do not depend on how a model is divided") {
  const auto result_of = [](const TempDir& dir, const std::string& parallel, int steps) {
    TrainingJob job("[model]\nfreeze = fc2\n" + with_checkpoints(dir, steps, "ema = 0.9\n[parallel]\n" + parallel));
    const auto summary = job.run(2)[0];
    return std::tuple(flat(*trained_model(job)), summary.parameter_digest, summary.evaluation.loss);
  };
  const TempDir whole, changing;
  const auto expected = result_of(whole, "zero = 0\n", 15);
  for (const auto* parallel : {"zero = 1\n", "zero = 2\n", "zero = 3\n"}) {
    INFO(parallel);
    const TempDir dir;
    CHECK((result_of(dir, parallel, 15) == expected));
  }
  int steps = 0;
  for (const auto* parallel : {"zero = 3\n", "zero = 0\n", "zero = 2\n", "zero = 1\n", "zero = 3\n"}) {
    steps += 3;
    CHECK((result_of(changing, parallel, steps) == expected) == (steps == 15));
  }
}

TEST_CASE("commands load the averages where a checkpoint has them, and a run may begin them anew") {
  const TempDir dir;
  TrainingJob(with_checkpoints(dir, 3, "")).run(1);
  CHECK(!std::filesystem::exists(dir / "step_000003" / "ema.safetensors"));
  const TrainingJob with_average(with_checkpoints(dir, 6, "ema = 0.9\n"));
  TrainingJob(with_checkpoints(dir, 6, "ema = 0.9\n")).run(1);
  REQUIRE(std::filesystem::exists(dir / "step_000006" / "ema.safetensors"));
  const auto averages = flat(*trained_model(with_average));
  std::filesystem::remove_all(dir / "step_000006");
  CHECK(flat(*trained_model(with_average)) != averages);  // the one of step 3 has no average
}
