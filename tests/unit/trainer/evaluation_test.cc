#include "worker/trainer/session/evaluation.h"

#include "worker/autograd/variable.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/data/digits.h"
#include "worker/data/random_tensors.h"
#include "worker/nn/models.h"
#include "worker/tasks/tasks.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

std::unique_ptr<nn::Module> linear_model(const data::SampleLayout& layout, std::int64_t outputs) {
  Generator generator(3);
  return nn::make_model("linear", {.input = layout.input_shape, .outputs = outputs}, generator);
}

std::unique_ptr<tasks::Task> task_of(const data::Dataset& set) {
  return tasks::make_task("auto", {.layout = set.layout()});
}

// Returns counts made by hand, one sample at a time.
Evaluation expected(nn::Module& model, const data::Dataset& set) {
  const NoGradScope no_grad;
  const auto task = task_of(set);
  Evaluation sum{.loss = 0, .accuracy = 0};
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const auto sample = data::make_batch(set, {i});
    const auto output = model(Variable(sample.input()));
    sum.loss += task->loss([&](const Variable&) { return output; }, sample).loss.value().item();
    if (set.layout().classes == 0) continue;
    const float* scores = output.value().data<float>();
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < output.value().size(1); ++c) best = scores[c] > scores[best] ? c : best;
    *sum.accuracy += best == sample.target().data<std::int64_t>()[0];
  }
  sum.loss /= static_cast<double>(set.size());
  *sum.accuracy /= static_cast<double>(set.size());
  return sum;
}

}  // namespace

TEST_CASE("an evaluation counts every sample once, however many ranks share it") {
  const data::DigitsDataset set({.size = 203, .split = data::Split::test});
  const auto oracle = expected(*linear_model(set.layout(), 10), set);
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [&](ProcessGroup& group) {
      const auto model = linear_model(set.layout(), 10);
      const auto found = evaluate(*model, *task_of(set), set, group, {.batch_size = 20});
      if (found.accuracy != oracle.accuracy) throw std::runtime_error("accuracy differs");
      if (std::abs(found.loss - oracle.loss) > 1e-5) throw std::runtime_error("loss differs");
      if (!model->training()) throw std::runtime_error("the model was left in evaluation mode");
    });
  }
}

TEST_CASE("an evaluation in shards has the same bits with any number of ranks") {
  const data::DigitsDataset set({.size = 203, .split = data::Split::test});
  const auto loss_of = [&](int ranks) {
    std::vector<double> losses(static_cast<std::size_t>(ranks));
    testing::run_ranks(ranks, [&](ProcessGroup& group) {
      const auto model = linear_model(set.layout(), 10);
      losses[static_cast<std::size_t>(group.rank())] =
          evaluate(*model, *task_of(set), set, group, {.batch_size = 20, .shards = 8}).loss;
    });
    CHECK(std::ranges::count(losses, losses.front()) == ranks);
    return losses.front();
  };
  const double alone = loss_of(1);
  for (const int ranks : {2, 3, 5, 8, 10}) {
    CAPTURE(ranks);
    CHECK(loss_of(ranks) == alone);
  }
}

TEST_CASE("a rank without a sample takes part") {
  const data::DigitsDataset set({.size = 2});
  testing::run_ranks(3, [&](ProcessGroup& group) {
    const auto model = linear_model(set.layout(), 10);
    const auto found = evaluate(*model, *task_of(set), set, group, {});
    if (!(found.loss > 0)) throw std::runtime_error("no loss");
  });
}

TEST_CASE("numbers have a mean squared error and no accuracy") {
  const data::RandomTensors set({.size = 64, .input_shape = {4}, .outputs = 2});
  const auto model = linear_model(set.layout(), 2);
  const auto oracle = expected(*model, set);
  const auto found = evaluate(*model, *task_of(set), set, *comm::make_self_group(), {.batch_size = 10});
  CHECK(found.loss == Approx(oracle.loss).epsilon(1e-6));
  CHECK_FALSE(found.accuracy);
}
