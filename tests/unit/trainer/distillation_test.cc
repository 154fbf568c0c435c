#include <cmath>

#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/nn/models.h"
#include "worker/nn/state.h"
#include "worker/tasks/tasks.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/teacher.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const data::SampleLayout labels{.input_shape = {2}, .classes = 3};
const std::vector<double> student{1, -0.5, 0.25, 0, 2, -1}, teacher{3, 0, -1, 0.5, 1.5, 0};
const std::vector<std::int64_t> classes{0, 2};

data::Batch two_samples() {
  data::Batch batch;
  batch.samples.resize(2);
  batch.add("input", Tensor::zeros({2, 2}));
  batch.add("target", Tensor::from(classes, {2}));
  return batch;
}

std::vector<double> softmax_of(const std::vector<double>& scores, std::size_t row, double temperature) {
  std::vector<double> exponentials;
  double total = 0;
  for (std::size_t i = 0; i < 3; ++i) total += exponentials.emplace_back(std::exp(scores[3 * row + i] / temperature));
  for (double& value : exponentials) value /= total;
  return exponentials;
}

// Returns the loss by its definition, in double.
double loss_by_hand(double temperature, double weight) {
  double entropy = 0, divergence = 0;
  for (std::size_t row = 0; row < 2; ++row) {
    entropy -= std::log(softmax_of(student, row, 1)[static_cast<std::size_t>(classes[row])]);
    const auto p = softmax_of(teacher, row, temperature), q = softmax_of(student, row, temperature);
    for (std::size_t i = 0; i < 3; ++i) divergence += p[i] * std::log(p[i] / q[i]);
  }
  return (1 - weight) * entropy / 2 + weight * temperature * temperature * divergence / 2;
}

// Returns a job whose teacher has the student's shape, with the parameters of a run in the folder.
std::string distillation_job(const TempDir& dir, const std::string& more) {
  return "[model]\nname = mlp\nhidden = 8\n[data]\nname = random\nshape = 6\nlabels = true\noutputs = 3\nsamples = "
         "200\ntest_samples = 50\n[train]\nbatch_size = 10\nepochs = 4\ntask = distillation\n[distill]\nteacher = "
         "mlp\nhidden = 8\nweights = " +
         (dir / "teacher.safetensors").string() + "\n" + more;
}

}  // namespace

TEST_CASE("the loss of a distillation is that of its definition, and its gradient comes from the student alone") {
  for (const auto& [temperature, weight] : {std::pair{1.0, 0.5}, {4.0, 0.9}, {2.5, 0.0}, {3.0, 1.0}}) {
    INFO("temperature " << temperature << ", weight " << weight);
    const Variable scores(Tensor::from(student, {2, 3}), true), from_teacher(Tensor::from(teacher, {2, 3}), true);
    bool recorded = false;
    const tasks::Forward ask_teacher = [&](const Variable&) {
      recorded = recorded || grad_enabled();
      return from_teacher;
    };
    const auto task = tasks::make_task(
        "distillation",
        {.layout = labels, .distillation = {.teacher = ask_teacher, .temperature = temperature, .weight = weight}});
    const auto [loss, items] = task->loss([&](const Variable&) { return scores; }, two_samples());
    CHECK(loss.value().item() == Approx(loss_by_hand(temperature, weight)).epsilon(1e-12));
    CHECK(items == 2);
    loss.backward();
    CHECK(scores.grad().defined());
    CHECK_FALSE(from_teacher.grad().defined());
    CHECK_FALSE(recorded);
  }
}

TEST_CASE("a distillation is evaluated as a classification, without its teacher") {
  int asked = 0;
  const tasks::Forward ask_teacher = [&](const Variable&) {
    ++asked;
    return Variable();
  };
  const auto task = tasks::make_task("distillation", {.layout = labels, .distillation = {.teacher = ask_teacher}});
  std::vector<double> sums(task->sum_count());
  task->add_to(
      sums,
      [](const Variable&) {
        return Variable(Tensor::from(student, {2, 3}));
      },
      two_samples());
  CHECK(task->finish(sums).accuracy == 0.5);
  CHECK(task->finish(sums).loss == Approx(loss_by_hand(1, 0)));
  CHECK(asked == 0);
}

TEST_CASE("a student learns from a teacher's file, and the same bits twice") {
  const TempDir dir;
  Generator generator(9);
  const auto model = nn::make_model("mlp", {.input = {6}, .outputs = 3, .hidden = {8}}, generator);
  nn::save_state(*model, dir / "teacher.safetensors");
  const auto digest = [&](const std::string& more) {
    return TrainingJob(distillation_job(dir, more)).run(2)[0].parameter_digest;
  };
  CHECK(digest("weight = 1\n") == digest("weight = 1\n"));
  CHECK(digest("weight = 1\n") != digest("weight = 0\n"));
  CHECK(digest("weight = 1\n") != digest("weight = 1\ntemperature = 1\n"));
}

TEST_CASE("the task of an evaluation alone needs no teacher's file") {
  const TempDir dir;
  const TrainingJob job(distillation_job(dir, ""));  // there is no such file
  const auto& layout = job.datasets().train->layout();
  CHECK_THROWS_WITH(trainer::make_task(job.config(), layout), Catch::Contains("teacher.safetensors"));
  CHECK(trainer::make_evaluation_task(job.config(), layout)->outputs() == 3);
}

TEST_CASE("a teacher that does not fit is an error that names the key") {
  const TempDir dir;
  CHECK_THROWS_WITH(TrainingJob(distillation_job(dir, "")).run(1),
                    Catch::StartsWith("distill.weights = ") && Catch::Contains("teacher.safetensors"));
  Generator generator(9);
  nn::save_state(*nn::make_model("mlp", {.input = {6}, .outputs = 3, .hidden = {5}}, generator),
                 dir / "teacher.safetensors");
  CHECK_THROWS_WITH(TrainingJob(distillation_job(dir, "")).run(1),
                    Catch::StartsWith("distill.weights = ") && Catch::Contains("fc1.weight has shape [5, 6]"));
  CHECK_THROWS_WITH(TrainingJob("[train]\ntask = distillation\n"), Catch::Contains("distill.teacher"));
  CHECK_THROWS_WITH(TrainingJob("[train]\ntask = distillation\n[distill]\nteacher = mlp\n"),
                    Catch::Contains("distill.weights"));
  CHECK_THROWS_WITH(TrainingJob("[distill]\nteacher = mlp\n"), Catch::Contains("train.task = distillation"));
}
