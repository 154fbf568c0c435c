// One training step without communication: forward, backward, optimizer, on random data. Figures are medians of wall
// time. Set OMP_NUM_THREADS=1 for what one of several ranks on a machine has.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "ddprun/common/deadline.h"
#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "tests/bench/latency.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models{"cnn", "mlp"};
  std::int64_t batch = 64;
  std::vector<std::int64_t> hidden{1024, 1024};
  std::string optimizer = "adam";
  double seconds = 3;
};

struct Times {
  Latencies forward, backward, optimizer, step;
};

class Training {
 public:
  Training(const std::string& name, const Options& options) : generator_(1) {
    model_ = nn::make_model(name, {.hidden = options.hidden}, generator_);
    optimizer_ = optim::make_optimizer(options.optimizer, {}, model_->named_parameters());
    images_ = Tensor::empty({options.batch, 1, 28, 28});
    fill_normal(images_, 0, 1, generator_);
    labels_ = Tensor::empty({options.batch}, DType::int64);
    for (std::int64_t i = 0; i < options.batch; ++i) {
      labels_.data<std::int64_t>()[i] = static_cast<std::int64_t>(generator_.below(10));
    }
  }

  void step(Times& times) {
    const auto start = Clock::now();
    const Variable loss = cross_entropy((*model_)(Variable(images_)), labels_);
    const auto forward_done = Clock::now();
    loss.backward();
    const auto backward_done = Clock::now();
    optimizer_->step();
    optimizer_->zero_grad();
    const auto end = Clock::now();
    times.forward.add(forward_done - start);
    times.backward.add(backward_done - forward_done);
    times.optimizer.add(end - backward_done);
    times.step.add(end - start);
  }

 private:
  Generator generator_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor images_, labels_;
};

std::string threads_in_use() {
  return Environment::capture().get("OMP_NUM_THREADS").value_or(std::to_string(std::thread::hardware_concurrency()));
}

void print(const std::string& model, const Options& options, Times& times, bool json) {
  const auto median_ms = [](Latencies& latencies) { return latencies.quantile_us(0.5) / 1e3; };
  const double step_ms = median_ms(times.step);
  const auto text = fmt::runtime(
      json
          ? R"({{"model": "{}", "batch": {}, "threads": {}, "steps": {}, "forward_ms": {:.3f}, "backward_ms": {:.3f}, )"
            R"("optimizer_ms": {:.3f}, "step_ms": {:.3f}, "samples_per_s": {:.0f}}})"
            "\n"
          : "{:<8}{:>6}{:>9}{:>7}{:>12.3f}{:>13.3f}{:>14.3f}{:>9.3f}{:>15.0f}\n");
  fmt::print(text, model, options.batch, threads_in_use(), times.step.count(), median_ms(times.forward),
             median_ms(times.backward), median_ms(times.optimizer), step_ms,
             static_cast<double>(options.batch) * 1e3 / step_ms);
}

void run(const Options& options, bool json) {
  if (!json) {
    fmt::print("{:<8}{:>6}{:>9}{:>7}{:>12}{:>13}{:>14}{:>9}{:>15}\n", "model", "batch", "threads", "steps",
               "forward_ms", "backward_ms", "optimizer_ms", "step_ms", "samples_per_s");
  }
  for (const std::string& model : options.models) {
    Training training(model, options);
    Times warm_up, times;
    for (int i = 0; i < 5; ++i) training.step(warm_up);
    const auto end =
        Deadline::in(std::chrono::duration_cast<Deadline::Duration>(std::chrono::duration<double>(options.seconds)));
    do training.step(times);
    while (!end.expired());
    print(model, options, times, json);
  }
}

}  // namespace

Run train_step_bench(CLI::App& subcommand) {
  auto options = std::make_shared<Options>();
  subcommand.add_option("--model", options->models, "models, each a row (default: cnn and mlp)");
  subcommand.add_option("--batch", options->batch, "samples a step (default: 64)")->check(CLI::PositiveNumber);
  subcommand.add_option("--hidden", options->hidden, "hidden sizes of the mlp (default: 1024 1024)");
  subcommand.add_option("--optimizer", options->optimizer, "adam or sgd (default: adam)");
  subcommand.add_option("--seconds", options->seconds, "how long each row is measured (default: 3)");
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
