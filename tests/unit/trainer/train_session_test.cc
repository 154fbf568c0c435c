#include "worker/trainer/session/train_session.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/deadline.h"
#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/data/distributed_sampler.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/model_devices.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// 100 samples give 7 steps an epoch for two ranks with batch 8.
const std::string job_text =
    "[model]\nname = mlp\nhidden = 8 5\ndropout = 0.2\n[data]\nname = random\nsamples = 100\ntest_samples = 10\n"
    "[train]\nepochs = 3\nbatch_size = 8\n";

const std::vector<std::string> optimizers = {
    "[optim]\nname = adam\n", "[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\n",
    "[optim]\nname = adamw\nweight_decay = 0.1\ndecay_one_dimensional = false\nclip_norm = 0.5\nschedule = "
    "cosine\nschedule_length = 21\n",
    "[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\nnesterov = true\nclip_value = 0.1\n",
    "[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\ndampening = 0.5\n"};

// Trains some steps in a new session on a new group, at every rank.
void train(std::vector<std::unique_ptr<Replica>>& replicas, std::int64_t steps) {
  run_ranks(static_cast<int>(replicas.size()), [&](ProcessGroup& group) {
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group);
    for (std::int64_t i = 0; i < steps; ++i) session->step(false);
  });
}

std::vector<std::unique_ptr<Replica>> replicas_of(const TrainingJob& job, int ranks) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int rank = 0; rank < ranks; ++rank) replicas.push_back(std::make_unique<Replica>(job));
  return replicas;
}

// Calls a function after each call of its module.
class AfterCall final : public nn::CallHook {
 public:
  explicit AfterCall(std::function<void()> function) : function_(std::move(function)) {}
  std::vector<Variable> before(std::vector<Variable> inputs) override { return inputs; }
  std::vector<Variable> after(std::vector<Variable> results) override {
    function_();
    return results;
  }

 private:
  const std::function<void()> function_;
};

// A model, and beside it a layer that no pass reaches.
class WithSpareLayer final : public nn::Module {
 public:
  explicit WithSpareLayer(std::unique_ptr<nn::Module> used) : used_(register_module("used", std::move(used))) {
    Generator generator(1);
    register_module("spare", std::make_unique<nn::Linear>(8, 8, generator));
  }
  Variable forward(const Variable& input) override { return used_(input); }

 private:
  nn::Module& used_;
};

}  // namespace

TEST_CASE("a state goes on in another session on another group with the same bits") {
  for (const std::string& optimizer : optimizers) {
    TrainingJob job(job_text + optimizer);
    const auto undisturbed = job.run(2)[0];
    REQUIRE(undisturbed.steps == 21);
    auto replicas = replicas_of(job, 2);
    for (const std::int64_t steps : {10, 4, 1, 6}) train(replicas, steps);  // the second ends with an epoch
    for (const auto& replica : replicas) {
      CHECK(replica->state.run.step == 21);
      CHECK(trainer::parameter_digest(*replica->state.model) == undisturbed.parameter_digest);
    }
  }
}

TEST_CASE("a state goes on in a smaller group at the same sample, and every sample is trained once") {
  TrainingJob job(
      "[model]\nname = linear\n[data]\nname = random\nsamples = 500\ntest_samples = 10\nworkers = 0\n"
      "[train]\nbatch_size = 9\n");
  const auto& samples = job.record_samples();
  auto replicas = replicas_of(job, 3);
  train(replicas, 7);
  CHECK(replicas[0]->state.run.samples == 189);
  replicas.erase(replicas.begin());
  train(replicas, 18);  // 311 samples in steps of 18
  CHECK(replicas[0]->state.run.epoch == 1);
  CHECK(replicas[0]->state.run.world_size == 2);
  auto trained = samples.indices();
  std::sort(trained.begin(), trained.end());
  CHECK(trained == data::epoch_order(500, 0, 0, false));
}

TEST_CASE("with train.shards a step that failed in one group of ranks is finished in another") {
  TrainingJob job(job_text + "shards = 8\n");
  const auto expected = [&] {
    auto replicas = replicas_of(job, 1);
    train(replicas, 3);
    return trainer::parameter_digest(*replicas[0]->state.model);
  }();
  auto replicas = replicas_of(job, 4);
  train(replicas, 2);
  std::atomic<int> forward_passes = 0;
  run_ranks(4, [&](ProcessGroup& group) {
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group);
    session->listen_to_phases([&](profiler::Phase phase, auto, auto) {
      if (phase == &profiler::StepTimes::forward) ++forward_passes;
    });
    // Rank 3 takes part in what comes before a step's passes, and is lost when all others have completed the first of
    // their two shards: they have made a forward pass of the second.
    if (group.rank() == 3) {
      all_gather_bytes(group, "");
      const auto limit = Deadline::in(std::chrono::seconds(30));
      while (forward_passes < 6 && !limit.expired()) std::this_thread::yield();
      group.abort("rank 3 is lost");
      return;
    }
    try {
      session->step(false);
    } catch (const Error&) {
      return;
    }
    throw std::runtime_error("a step without rank 3");
  });
  replicas.pop_back();
  std::vector<std::int64_t> samples(replicas.size());
  run_ranks(3, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    samples[rank] = replicas[rank]->session(group)->step(false).own_samples;
  });
  // If the others had completed their second shard as well, the two of rank 3 are left.
  const auto computed = samples[0] + samples[1] + samples[2];
  CHECK(computed >= 16);
  CHECK(computed <= 40);
  for (const auto& replica : replicas) {
    CHECK(replica->state.run.step == 3);
    CHECK(trainer::parameter_digest(*replica->state.model) == expected);
  }
}

TEST_CASE("the number of steps of a run is the same from anywhere in it") {
  TrainingJob job(job_text);
  auto replicas = replicas_of(job, 2);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group);
    for (int i = 0; i <= 21; ++i) {
      if (session->total_steps() != 21) throw std::runtime_error("another total");
      if (i < 21) session->step(false);
    }
  });
}

TEST_CASE("a run that goes on from a checkpoint has the bits of one that never stopped, with every optimizer") {
  for (const std::string& optimizer : optimizers) {
    INFO(optimizer);
    const auto run = [&](const TempDir& dir, int steps) {
      TrainingJob job(job_text + "max_steps = " + std::to_string(steps) + "\n" + optimizer + "[checkpoint]\ndir = " +
                      (dir / "checkpoints").string() + "\n[metrics]\nfile = " + (dir / "metrics").string() + "\n");
      return job.run(2)[0];
    };
    const TempDir undisturbed, stopped;
    const auto expected = run(undisturbed, 21);
    for (const int steps : {1, 9, 14}) run(stopped, steps);
    CHECK(run(stopped, 21).parameter_digest == expected.parameter_digest);
    CHECK(losses_in(stopped / "metrics") == losses_in(undisturbed / "metrics"));
  }
}

TEST_CASE("gradients are clipped after they are averaged, by the same norm at all ranks") {
  const std::string text =
      "[model]\nname = linear\n[data]\nname = random\nsamples = 96\ntest_samples = 10\n"
      "[train]\nglobal_batch_size = 24\naccumulate = 2\n[optim]\nname = sgd\nlr = 0.1\nclip_norm = 0.25\n";
  const TrainingJob job(text);
  // Returns the norm of each step at each rank, and the parameters at the end.
  const auto train_with = [&](int ranks) {
    auto replicas = replicas_of(job, ranks);
    std::vector<std::vector<double>> norms(replicas.size());
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const auto session = replicas[rank]->session(group);
      for (int i = 0; i < 4; ++i) norms[rank].push_back(session->step(false).grad_norm.value());
    });
    return norms;
  };
  const auto one = train_with(1)[0];
  CHECK(one[0] > 0.25);
  CHECK(one[3] < one[0]);
  for (const auto& norms : train_with(3)) {
    CHECK(norms == train_with(3)[0]);
    for (std::size_t i = 0; i < norms.size(); ++i) CHECK(norms[i] == Approx(one[i]).epsilon(1e-5));
  }
}

TEST_CASE("each key of the optimizer reaches it") {
  const auto digest = [](const std::string& optimizer) {
    const TrainingJob job(job_text + "[optim]\nname = " + optimizer);
    auto replicas = replicas_of(job, 1);
    train(replicas, 3);
    return trainer::parameter_digest(*replicas[0]->state.model);
  };
  const std::string sgd = "sgd\nlr = 0.05\nmomentum = 0.9\nweight_decay = 0.1\n", adamw = "adamw\nweight_decay = 0.1\n";
  const auto plain = digest(sgd), decoupled = digest(adamw);
  CHECK(digest(sgd) == plain);
  for (const char* more : {"nesterov = true\n", "dampening = 0.5\n", "decay_one_dimensional = false\n",
                           "clip_norm = 0.01\n", "clip_value = 0.01\n"}) {
    INFO(more);
    CHECK(digest(sgd + more) != plain);
  }
  CHECK(digest("adam\nweight_decay = 0.1\n") != decoupled);
  CHECK(digest(adamw + "beta1 = 0.5\n") != decoupled);
}

TEST_CASE("without optim.clip_norm no norm is computed") {
  const TrainingJob job(job_text);
  auto replicas = replicas_of(job, 1);
  run_ranks(1, [&](ProcessGroup& group) {
    if (replicas[0]->session(group)->step(false).grad_norm) throw std::runtime_error("a norm");
  });
}

TEST_CASE("weight decay leaves out parameters of one dimension if told so") {
  // There is almost no gradient: changes come from the decay.
  const auto shrinks = [](const std::string& more) {
    const TrainingJob job(job_text + "[optim]\nname = sgd\nlr = 0.5\nweight_decay = 1\nclip_value = 1e-9\n" + more);
    auto replicas = replicas_of(job, 1);
    const auto parameters = replicas[0]->state.model->named_parameters();
    std::vector<Tensor> before;
    for (const auto& [name, parameter] : parameters) before.push_back(parameter.value().clone());
    train(replicas, 1);
    std::vector<bool> weights_and_biases;
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensor& now = parameters[i].second.value();
      weights_and_biases.push_back(std::abs(now.data<float>()[0]) < 0.6 * std::abs(before[i].data<float>()[0]));
    }
    return weights_and_biases;
  };
  CHECK(shrinks("") == std::vector<bool>{true, true});
  CHECK(shrinks("decay_one_dimensional = false\n") == std::vector<bool>{true, false});
}

namespace {

std::string batch_norm_job(const TempDir& dir, const std::string& data) {
  return "[data]\nname = random\nshape = 3x8x8\noutputs = 4\nlabels = true\ntest_samples = 8\nworkers = 0\n" + data +
         "[model]\nname = resnet18\nchannels = 8\n[optim]\nname = sgd\nlr = 0.0002\n[eval]\nevery_epochs = 0\n"
         "[parallel]\nsync_batch_norm = true\n[metrics]\nfile = " +
         (dir / "metrics").string() + "\n[train]\nglobal_batch_size = 16\nmax_steps = 10\n";
}

}  // namespace

TEST_CASE("with parallel.sync_batch_norm two ranks have the losses of one") {
  TempDir dir;
  TrainingJob(batch_norm_job(dir, "samples = 160\n")).run(1);
  const auto one = losses_in(dir / "metrics");
  TrainingJob(batch_norm_job(dir, "samples = 160\n")).run(2);
  const auto two = losses_in(dir / "metrics");
  REQUIRE(one.size() == 10);
  REQUIRE(two.size() == 10);
  for (std::size_t step = 0; step < one.size(); ++step) CHECK(two[step] == Approx(one[step]).epsilon(1e-6));
}

TEST_CASE("parallel.sync_batch_norm refuses a step in which the ranks have unequal numbers of micro-batches") {
  TempDir dir;
  CHECK_THROWS_WITH(TrainingJob(batch_norm_job(dir, "samples = 17\n")).run(2),
                    "parallel.sync_batch_norm = true: in a step of 1 samples rank 0 has 1 micro-batches and rank 1 0; "
                    "they need as many each, for instance with data.drop_last = true");
}

namespace {

// Returns the most bytes that the second of two devices held in a step of a job.
std::size_t second_device_peak(const std::string& recompute) {
  const TrainingJob job(
      "[data]\nname = random\nshape = 3x32x32\noutputs = 4\nlabels = true\nsamples = 8\ntest_samples = 8\n"
      "[model]\nname = resnet18\nchannels = 8\n[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cpu:1\n"
      "[train]\nbatch_size = 8\nmax_steps = 1\nrecompute = " +
      recompute + "\n");
  Replica replica(job);
  std::size_t peak = 0;
  run_ranks(1, [&](ProcessGroup& group) {
    const auto session = replica.session(group);
    reset_peak_memory(parse_device("cpu:1"));
    session->step(false);
    peak = memory_stats(parse_device("cpu:1")).peak;
  });
  return peak;
}

// Returns the most bytes that dividing a model among two devices by measured times takes.
std::size_t split_peak(const std::string& batch) {
  const TrainingJob job(
      "[data]\nname = random\nshape = 1024\noutputs = 4\nsamples = 256\ntest_samples = 8\n"
      "[model]\nname = mlp\nhidden = 1024\n[parallel]\ndevices = cpu:0 cpu:1\n[train]\n" +
      batch);
  Generator generator(1);
  const auto model = nn::make_model("mlp", {.input = {1024}, .outputs = 4, .hidden = {1024}}, generator);
  const auto before = memory_stats(parse_device("cpu:0")).allocated;
  reset_peak_memory(parse_device("cpu:0"));
  trainer::place_model(job.config(), *model, job.datasets().train->layout());
  return memory_stats(parse_device("cpu:0")).peak - before;
}

}  // namespace

TEST_CASE("replicas on devices recompute as the model does") {
  CHECK(second_device_peak("blocks") < second_device_peak("none") * 9 / 10);
}

TEST_CASE("a model is divided by the times of its micro-batch, whichever key gives that") {
  const std::size_t given = split_peak("batch_size = 64\n");
  CHECK(given >= 64 * 1024 * sizeof(float));
  CHECK(split_peak("global_batch_size = 256\naccumulate = 4\n") == given);
}

namespace {

struct Layout {
  std::string settings;
  int ranks;
  std::string parameter;         // the one of which the last rank flips a bit
  std::vector<int> complaining;  // the ranks that find it
};

// Returns the error of each rank's comparison after a step; empty if there is none.
std::vector<std::string> errors_after_a_flip(const Layout& layout) {
  const TrainingJob job(layout.settings);
  auto replicas = replicas_of(job, layout.ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(layout.ranks));
  run_ranks(layout.ranks, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto session = replicas[rank]->session(group);
    session->step(false);
    const auto check = [&] {
      trainer::check_replicas([&](const auto& visitor) { session->visit_replicas(visitor); }, group.rank(), 1);
    };
    check();  // all is well so far
    if (group.rank() == layout.ranks - 1)
      session->visit_replicas([&](ProcessGroup&, const std::string& name, Tensor value) {
        if (name == layout.parameter) static_cast<std::uint8_t*>(value.raw())[1] = 0x5a;
      });
    try {
      check();
    } catch (const Error& e) {
      errors[rank] = e.what();
    }
    group.barrier()->wait();  // also for ranks that found nothing
  });
  return errors;
}

}  // namespace

TEST_CASE("corruption at one rank is found by the ranks that have copies of the same parameters, and by no others") {
  const std::string mlp = "[model]\nname = mlp\nhidden = 8 8\n[data]\nname = random\nsamples = 64\n";
  const std::string train = "[train]\nglobal_batch_size = 16\n[parallel]\n";
  const std::vector<Layout> layouts{
      {mlp + train, 3, "fc1.weight", {0, 1, 2}},
      {mlp + train + "zero = 1\n", 3, "fc2.weight", {0, 1, 2}},
      {mlp + train + "zero = 2\n", 3, "fc2.weight", {0, 1, 2}},
      {mlp + train + "zero = 3\nshard_group = 2\n", 4, "fc3.weight", {1, 3}},
      {mlp + train + "zero = 3\n", 2, "fc1.weight", {}},  // there is one copy
      {mlp + train + "strategy = local_sgd\n", 2, "fc1.weight", {}},
      {mlp + train + "ignored_parameters = fc1.weight\n", 2, "fc1.weight", {}},
      {mlp + train + "ignored_parameters = fc1.weight\n", 2, "fc1.bias", {0, 1}},
      {mlp + train + "tensor = 2\n", 4, "fc1.weight", {1, 3}},   // sliced: rank 1 has the same slice
      {mlp + train + "tensor = 2\n", 4, "fc2.bias", {1, 3, 2}},  // whole: first over the data, then over the slices
      {mlp + train + "pipeline = 2\nmicro_batches = 2\n", 4, "fc3.weight", {2, 3}},
  };
  for (const auto& layout : layouts) {
    INFO(layout.settings << layout.parameter);
    const auto errors = errors_after_a_flip(layout);
    for (int rank = 0; rank < layout.ranks; ++rank) {
      INFO("rank " << rank << ": " << errors[static_cast<std::size_t>(rank)]);
      const bool complains = std::ranges::count(layout.complaining, rank) > 0;
      CHECK(errors[static_cast<std::size_t>(rank)].empty() != complains);
    }
  }
}

TEST_CASE("a parameter that no pass reaches stays as it is, whatever part of it each rank has") {
  for (const std::string zero : {"1", "2", "3"}) {
    INFO("zero = " << zero);
    const TrainingJob job(job_text + "[optim]\nname = adamw\nweight_decay = 0.5\n[parallel]\nzero = " + zero +
                          "\nfind_unused_parameters = true\n");
    auto replicas = replicas_of(job, 2);
    using Values = std::map<std::string, std::vector<float>>;
    Values before, after;
    for (const auto& replica : replicas) {
      replica->state.model = std::make_unique<WithSpareLayer>(std::move(replica->state.model));
      for (const auto& [name, parameter] : replica->state.model->named_parameters()) {
        const Tensor& value = parameter.value();
        before[name] = {value.data<float>(), value.data<float>() + value.numel()};
      }
    }
    run_ranks(2, [&](ProcessGroup& group) {
      const auto session = replicas[static_cast<std::size_t>(group.rank())]->session(group);
      for (int i = 0; i < 3; ++i) session->step(false);
      session->visit_parameters([&](const std::string& name, const Tensor& value) {
        if (group.rank() == 0) after[name] = {value.data<float>(), value.data<float>() + value.numel()};
      });
    });
    REQUIRE(after.size() == before.size());
    for (const auto& [name, values] : after) {
      INFO(name);
      CHECK((values == before.at(name)) == name.starts_with("spare."));
    }
  }
}

TEST_CASE("a computation ends at its next operation once the group has failed") {
  TrainingJob job(job_text);
  Replica replica(job);
  int calls = 0;
  run_ranks(1, [&](ProcessGroup& group) {
    const auto session = replica.session(group);
    auto& model = *replica.state.model;
    const auto layers = model.module_names();
    model.module(layers.front()).set_call_hook(std::make_unique<AfterCall>([&] { group.abort("a rank is lost"); }));
    model.module(layers.back()).set_call_hook(std::make_unique<AfterCall>([&] { ++calls; }));
    const auto message_of = [](const auto& computation) {
      try {
        computation();
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    if (message_of([&] { session->step(false); }).find("a rank is lost") == std::string::npos) calls += 100;
    if (message_of([&] { session->evaluate(); }).find("a rank is lost") == std::string::npos) calls += 10000;
  });
  CHECK(calls == 0);
}

TEST_CASE("a task whose loss has another weight than it says is refused") {
  class HalfCounted final : public tasks::Task {
   public:
    explicit HalfCounted(const tasks::Task& task) : task_(task) {}
    std::int64_t outputs() const override { return task_.outputs(); }
    tasks::WeightedLoss loss(const tasks::Forward& model, const data::Batch& batch) const override {
      auto result = task_.loss(model, batch);
      result.weight /= 2;
      return result;
    }

   private:
    const tasks::Task& task_;
  };
  TrainingJob job(job_text);
  Replica replica(job);
  std::string message;
  run_ranks(1, [&](ProcessGroup& group) {
    const HalfCounted task(*replica.task);
    trainer::TrainSession session({.config = replica.config, .datasets = replica.datasets, .task = task}, replica.state,
                                  group);
    try {
      session.step(false);
    } catch (const Error& error) {
      message = error.what();
    }
  });
  CHECK(message == "train.task: a batch's loss has the weight 4, and Task::weight() says 8");
}
