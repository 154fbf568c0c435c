// Whole training steps of the models.
#include "worker/nn/models.h"
#include "worker/optim/optimizer.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

struct Batch {
  Tensor images, labels;
};

Batch random_batch(std::int64_t size, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(size));
  for (auto& label : labels) label = static_cast<std::int64_t>(generator.below(10));
  return {random_tensor({size, 1, 28, 28}, seed + 1), Tensor::from(labels, {size})};
}

// Returns samples [first, first + size) of a batch, as views.
Batch part_of(Batch& batch, std::int64_t first, std::int64_t size) {
  return {Tensor::wrap(batch.images.data<float>() + first * 784, {size, 1, 28, 28}, DType::float32, nullptr),
          Tensor::wrap(batch.labels.data<std::int64_t>() + first, {size}, DType::int64, nullptr)};
}

struct Run {
  explicit Run(std::string_view optimizer_name, optim::OptimOptions options = {}) {
    Generator generator(7);
    model = nn::make_model("cnn", {}, generator);
    optimizer = optim::make_optimizer(optimizer_name, options, model->named_parameters());
  }
  double backward(const Batch& batch, double share = 1) {
    const Variable loss = cross_entropy((*model)(Variable(batch.images)), batch.labels);
    mul(loss, share).backward();
    return loss.value().item() * share;
  }
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
};

}  // namespace

TEST_CASE("the CNN learns a small batch by heart") {
  Run run("adam");
  const Batch batch = random_batch(16, 1);
  double loss = 0;
  for (int step = 0; step < 80; ++step) {
    run.optimizer->zero_grad();
    loss = run.backward(batch);
    run.optimizer->step();
  }
  CHECK(loss < 0.01);
}

TEST_CASE("training twice gives the same bits") {
  Run first("adam"), second("adam");
  Batch batch = random_batch(64, 1);
  const Batch copy{batch.images.clone(), batch.labels};
  for (int step = 0; step < 3; ++step) {
    CHECK(first.backward(batch) == second.backward(copy));
    for (Run* run : {&first, &second}) {
      run->optimizer->step();
      run->optimizer->zero_grad();
    }
  }
  const auto a = first.model->named_parameters(), b = second.model->named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(same_bits(a[i].second.value(), b[i].second.value()));
}

TEST_CASE("two halves of a batch, averaged, train as the whole does") {
  struct Case {
    const char* optimizer;
    optim::OptimOptions options;
  };
  for (const auto& [name, options] : {Case{"adam", {}}, Case{"sgd", {.lr = 0.05, .momentum = 0.9}}}) {
    Run whole(name, options), halves(name, options);
    for (int step = 0; step < 10; ++step) {
      Batch batch = random_batch(128, static_cast<std::uint64_t>(step));
      const double loss = whole.backward(batch);
      const double mean = halves.backward(part_of(batch, 0, 64), 0.5) + halves.backward(part_of(batch, 64, 64), 0.5);
      INFO(name << " step " << step);
      CHECK(mean == Approx(loss).epsilon(1e-6));
      for (Run* run : {&whole, &halves}) {
        run->optimizer->step();
        run->optimizer->zero_grad();
      }
    }
  }
}

TEST_CASE("the MLP with dropout and the linear model take a step") {
  for (const char* name : {"mlp", "linear"}) {
    Generator generator(1);
    auto model = nn::make_model(name, {.hidden = {32, 16}, .dropout = 0.2}, generator);
    auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, model->named_parameters());
    const Batch batch = random_batch(32, 3);
    model->train(false);
    const auto loss_now = [&] { return cross_entropy((*model)(Variable(batch.images)), batch.labels); };
    const double before = loss_now().value().item();
    model->train();
    for (int step = 0; step < 20; ++step) {
      optimizer->zero_grad();
      loss_now().backward();
      optimizer->step();
    }
    model->train(false);
    CHECK(loss_now().value().item() < 0.7 * before);
  }
}
