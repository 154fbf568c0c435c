// Every form of parallel training, over steps of any number of samples, stopped and resumed after each step: the same
// bits as a run that is not stopped. Sizes and settings are drawn by the seed that a failure names. With
// DDPRUN_DRAWS=N in the environment each form is drawn N times.
#include <cstdlib>
#include <random>

#include <fmt/format.h>

#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

enum class Model { mlp, cnn_bn, gpt, gpt_experts };

// The settings that a form can be combined with.
struct Traits {
  bool whole_tensors = true;  // optimizers that need whole tensors
  bool accumulates = true;    // train.accumulate
  bool replicas = true;       // averages of parameters, and steps that fp16 skips
  bool equal_batches = false;
  bool has_buckets = true;  // buckets of gradients
};
constexpr Traits has_parts{.whole_tensors = false};
constexpr Traits local{.replicas = false, .has_buckets = false};
constexpr Traits has_stages{.accumulates = false, .replicas = false};
constexpr Traits has_stages_of_parts{.whole_tensors = false, .accumulates = false, .replicas = false};
constexpr Traits has_averaged_stages{.whole_tensors = false, .accumulates = false};

struct Form {
  int ranks;
  std::string parallel;  // lines of [parallel]
  Model model = Model::mlp;
  Traits traits = {};
};

std::vector<Form> data_parallel_forms() {
  std::vector<Form> forms{{1, ""},
                          {3, ""},
                          {3, "", Model::cnn_bn},
                          {2, "", Model::gpt},
                          {2, "", Model::gpt_experts},
                          {3, "find_unused_parameters = true\n"},
                          {3, "static_graph = true\n"},
                          {2, "delay_all_reduce_named_params = fc1.weight\n"},
                          {2, "sync_batch_norm = true\n", Model::cnn_bn, {.equal_batches = true}},
                          {3, "strategy = local_sgd\nlocal_sgd_period = 2\n", Model::mlp, local},
                          {3,
                           "strategy = local_sgd\nlocal_sgd_period = 3\nouter_lr = 0.7\nouter_momentum = 0.9\n"
                           "fragments = 2\nfragment_sync_delay = 1\n",
                           Model::mlp, local},
                          {2, "strategy = data_parallel\ndevices = cpu:0 cpu:1\n"},
                          {2, "devices = cpu:0 cpu:1\nsplit = fc2\n"}};
  for (const std::string hook : {"fp16", "bf16", "int8", "int8_channel", "int4", "topk", "powersgd"})
    forms.push_back({3, "hook = " + hook + (hook == "powersgd" ? "\nstart_powerSGD_iter = 2\n" : "\n")});
  return forms;
}

std::vector<Form> dividing_forms() {
  return {{3, "zero = 1\n", Model::mlp, has_parts},
          {3, "zero = 1\nfind_unused_parameters = true\n", Model::mlp, has_parts},
          {3, "zero = 2\n", Model::mlp, has_parts},
          {3, "zero = 3\nstatic_graph = true\n", Model::mlp, has_parts},
          {4, "zero = 2\nshard_group = 2\n", Model::mlp, has_parts},
          {3, "zero = 3\n", Model::mlp, has_parts},
          {3, "zero = 3\n", Model::cnn_bn, has_parts},
          {3, "zero = 3\nreshard_after_forward = false\n", Model::mlp, has_parts},
          {4, "zero = 3\nshard_group = 2\n", Model::gpt, has_parts},
          {4, "tensor = 2\n", Model::gpt, has_parts},
          {4, "tensor = 2\nsequence = true\n", Model::gpt, has_parts},
          {4, "context = 2\n", Model::gpt},
          {4, "context = 2\nzero = 3\n", Model::gpt, has_parts},
          {2, "expert = 2\n", Model::gpt_experts, has_parts},
          {4, "expert = 4\n", Model::gpt_experts, has_parts},
          {4, "expert = 2\n", Model::gpt_experts, has_parts},
          {4, "expert = 2\ncontext = 2\n", Model::gpt_experts, has_parts},
          {4, "expert = 2\nzero = 1\n", Model::gpt_experts, has_parts},
          {4, "expert = 2\ntensor = 2\nsequence = true\n", Model::gpt_experts, has_parts},
          {8, "context = 2\ntensor = 2\nsequence = true\nzero = 3\n", Model::gpt, has_parts},
          {4, "tensor = 2\nzero = 1\n", Model::gpt, has_parts},
          {4, "tensor = 2\nsequence = true\nzero = 1\n", Model::gpt, has_parts},
          {4, "tensor = 2\nzero = 2\n", Model::gpt, has_parts},
          {4, "tensor = 2\nsequence = true\nzero = 3\n", Model::gpt, has_parts}};
}

// The cuts are fixed: measured ones differ from run to run.
std::vector<Form> pipelines() {
  std::vector<Form> forms{
      {4, "pipeline = 2\nmicro_batches = 3\ntensor = 2\nsplit = h.2\n", Model::gpt, has_stages_of_parts},
      {4, "pipeline = 2\nmicro_batches = 2\n", Model::cnn_bn, has_stages}};
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble"})
    for (const std::string over : {"pipeline = 2\n", "devices = cpu:0 cpu:1\n"}) {
      const bool interleaved = schedule == "interleaved";
      forms.push_back({over.starts_with("pipeline") ? 4 : 2,
                       over + "micro_batches = 3\nschedule = " + schedule +
                           (interleaved ? "\nvirtual_stages = 2\nsplit = h.1 h.2 h.3\n" : "\nsplit = h.2\n"),
                       Model::gpt, has_stages});
    }
  forms.push_back({4, "pipeline = 2\nmicro_batches = 3\ncontext = 2\nsplit = h.2\n", Model::gpt, has_stages});
  forms.push_back({4, "pipeline = 2\nmicro_batches = 3\nzero = 1\nsplit = h.2\n", Model::gpt, has_averaged_stages});
  forms.push_back(
      {8, "pipeline = 2\nmicro_batches = 3\ntensor = 2\nzero = 1\nsplit = h.2\n", Model::gpt, has_averaged_stages});
  forms.push_back({4,
                   "pipeline = 2\nmicro_batches = 3\nzero = 1\nschedule = interleaved\nvirtual_stages = 2\n"
                   "split = h.1 h.2 h.3\n",
                   Model::gpt, has_averaged_stages});
  return forms;
}

class Draw {
 public:
  Draw(std::uint32_t seed, const Form& form) : generator_(seed), form_(form) {}

  int from(int low, int high) {
    return low + static_cast<int>(generator_() % static_cast<std::uint32_t>(high - low + 1));
  }
  bool one_in(int n) { return from(1, n) == 1; }
  const std::string& of(const std::vector<std::string>& choices) {
    return choices[static_cast<std::size_t>(from(0, static_cast<int>(choices.size()) - 1))];
  }

  // Returns a train.cfg without checkpoint.dir and train.max_steps.
  std::string job(const TempDir& dir) {
    int samples = from(3, 24), batch = from(1, 3 * form_.ranks + 1);
    if (form_.traits.equal_batches) samples = form_.ranks * from(2, 6), batch = form_.ranks;
    return data_and_model(dir, samples) + optimizer() + train(batch) +
           (one_in(2) && form_.traits.has_buckets ? "[dist]\nbucket_mb = 0.001\n" : "") +
           "[eval]\nbatch_size = 2\nevery_epochs = " + (one_in(3) ? "1" : "0") + "\n[parallel]\n" + form_.parallel;
  }

 private:
  std::string data_and_model(const TempDir& dir, int samples) {
    const std::string counts = fmt::format("samples = {}\ntest_samples = 5\n", samples);
    const std::string dropout = one_in(2) ? "dropout = 0.2\n" : "";
    if (form_.model == Model::mlp)
      return "[data]\nname = random\nshape = 6\n" + counts + "[model]\nname = mlp\nhidden = 12 9\n" + dropout;
    if (form_.model == Model::cnn_bn) return "[data]\nname = digits\n" + counts + "[model]\nname = cnn_bn\n";
    std::ofstream text(dir / "input.txt");
    for (int i = 0; i < 9 * (samples + 3); ++i) text << static_cast<char>('a' + i * 37 % 23);
    return "[data]\nname = text\ncontext = 8\ndir = " + dir.path().string() +
           "\n[model]\nname = gpt\nlayers = 4\nwidth = 16\nheads = 2\n" + dropout +
           (form_.model == Model::gpt_experts ? "experts = 4\n" : "");
  }

  std::string optimizer() {
    std::vector<std::string> names{"sgd", "adam", "adamw", "rmsprop"};
    if (form_.traits.whole_tensors && form_.model != Model::gpt_experts)
      for (const char* name : {"lamb", "lars", "muon"}) names.emplace_back(name);
    const std::string& name = of(names);
    const bool momentum = name == "sgd" || name == "lars" || name == "muon";
    return "[optim]\nname = " + name + "\nlr = 0.01\n" + (momentum ? "momentum = 0.9\n" : "") +
           (one_in(3) ? "clip_norm = 0.5\n" : "");
  }

  std::string train(int batch) {
    std::string text = fmt::format("[train]\nseed = {}\nglobal_batch_size = {}\nepochs = 3\n", from(0, 9), batch);
    if (form_.traits.accumulates && !form_.traits.equal_batches) text += fmt::format("accumulate = {}\n", from(1, 3));
    if (form_.traits.replicas) text += one_in(4) ? "precision = fp16\n" : one_in(3) ? "ema = 0.9\n" : "";
    return text;
  }

  std::mt19937 generator_;
  const Form& form_;
};

trainer::Summary run(const std::string& job, int ranks, std::int64_t steps, const std::string& more = {}) {
  return TrainingJob(job + "[train]\nmax_steps = " + std::to_string(steps) + "\n" + more).run(ranks)[0];
}

void check(const Form& form, std::uint32_t seed) {
  constexpr std::int64_t most_steps = 6;
  const TempDir dir, checkpoints;
  const std::string job = Draw(seed, form).job(dir);
  INFO("seed " << seed << ", " << form.ranks << " ranks\n" << job);
  const std::string kept = "[checkpoint]\ndir = " + checkpoints.path().string() + "\n";
  try {
    const auto undisturbed = run(job, form.ranks, most_steps);
    for (std::int64_t stop = 1; stop < undisturbed.steps; ++stop) CHECK(run(job, form.ranks, stop, kept).steps == stop);
    CHECK(run(job, form.ranks, most_steps, kept).parameter_digest == undisturbed.parameter_digest);
  } catch (const std::exception& e) {
    FAIL_CHECK(e.what());
  }
}

void check_all(const std::vector<Form>& forms) {
  const char* given = std::getenv("DDPRUN_DRAWS");
  const int draws = given ? std::atoi(given) : 1;
  for (std::size_t i = 0; i < forms.size(); ++i)
    for (int draw = 0; draw < draws; ++draw)
      check(forms[i], static_cast<std::uint32_t>(1000 * i) + static_cast<std::uint32_t>(draw));
}

}  // namespace

TEST_CASE("a run of ranks with replicas that stops after each step has the bits of one that does not") {
  check_all(data_parallel_forms());
}

TEST_CASE("a run of ranks that divide a model's state that stops after each step has the bits of one that does not") {
  check_all(dividing_forms());
}

TEST_CASE("a run of a pipeline that stops after each step has the bits of one that does not") {
  check_all(pipelines());
}
