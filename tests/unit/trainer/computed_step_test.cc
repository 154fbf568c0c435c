// The figures of steps without values, beside those of the same steps run by ranks that are threads.
#include "worker/trainer/commands/computed_step.h"

#include "worker/tensor/onednn/threads.h"
#include "worker/trainer/commands/measured_step.h"
#include "worker/trainer/commands/step_traffic.h"
#include "worker/trainer/config/model_axes.h"
#include "tests/numerics/layout_job.h"
#include "tests/unit/trainer/ranks.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

MeasuredStep measured(const TrainingJob& job, int ranks) {
  MeasuredStep result;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const onednn::OneThread one_thread;  // ranks are threads already
    const auto own = measure_step(job.config(), job.datasets(), group);
    if (group.rank() == 0) result = own;
  });
  return result;
}

ComputedStep computed(const TrainingJob& job, int ranks) {
  const auto step = compute_step(job.config(), job.datasets().train->layout(), ranks);
  REQUIRE(step.computed_blocks == step.blocks);  // too few to be scaled
  return step;
}

// tolerance: that of activations, which kernels add scratch memory to.
void check_equal(const RankUse& computed, const RankUse& run, double tolerance) {
  CHECK(computed.parameters == run.parameters);
  CHECK(computed.gradients == run.gradients);
  CHECK(computed.optimizer == run.optimizer);
  CHECK(computed.averages == run.averages);
  CHECK(computed.gathered == run.gathered);
  CHECK(computed.activations == Approx(run.activations).epsilon(tolerance));
}

// Returns the bytes that rank 0 sends in a step, from what it has and has sent to those that share its samples.
double sent_by(const TrainConfig& config, int ranks, const RankUse& run) {
  const auto& p = config.parallel;
  const SharedBytes bytes{.parameters = static_cast<std::size_t>(run.shared_parameters),
                          .buffers = static_cast<std::size_t>(run.shared_buffers),
                          .experts = static_cast<std::size_t>(run.shared_experts)};
  const auto micro_batches = micro_batches_of_step(config, ranks / ranks_of_sample(p.ranks));
  return static_cast<double>(*bytes_sent_in_step(p, bytes, micro_batches, ranks / ranks_of_model(p.ranks))) +
         run.sent_within;
}

// Computes what compute_step() does, from all blocks of the model. Stages that are cut by hand are not scaled.
ComputedStep whole_step(const TrainConfig& config, const data::SampleLayout& samples, int ranks) {
  if (config.parallel.ranks.on("pipeline") > 1) return compute_step(config, samples, ranks);
  const plugin::Registry registry;
  const RankUse use = DrySteps(samples, registry).of(config, ranks, 0);
  const double sent = sent_by(config, ranks, use) + use.sent_for_update;
  return {.use = use, .sent = static_cast<std::size_t>(sent), .operations = use.operations};
}

}  // namespace

TEST_CASE("a step without values takes what ranks of every layout take") {
  const TextFile text_file;
  const std::string gpt = text_file.keys({.context = 32, .layers = 4, .width = 64}) + "dropout = 0.1\n";
  const std::string same_widths = text_file.keys({.context = 32, .layers = 4, .width = 64});
  const std::string stages = "pipeline = 2\nmicro_batches = 4\nsplit = h.2\n";
  const std::string four = "[train]\nmax_steps = 2\nglobal_batch_size = 16\n";
  for (const auto& [ranks, model, train, parallel] :
       std::vector<std::tuple<int, std::string, std::string, std::string>>{
           {1, gpt, four, ""},
           {2, gpt, four, ""},
           {1, gpt, four + "accumulate = 4\n", ""},
           {1, gpt, four + "recompute = blocks\n", ""},
           {1, gpt, four + "precision = bf16\n", ""},
           {1, gpt, four + "ema = 0.9\n", ""},
           {4, gpt, four, "zero = 1\n"},
           {4, gpt, four, "zero = 2\n"},
           {4, gpt, four + "accumulate = 2\n", "zero = 2\nshard_group = 2\n"},
           {4, gpt, four, "zero = 3\n"},
           {2, gpt, four, "zero = 3\nreshard_after_forward = false\n"},
           {2, gpt, four + "precision = bf16\n", "zero = 3\n"},
           {4, gpt, four, "tensor = 2\n"},
           {4, gpt, four, "tensor = 4\nsequence = true\n"},
           {4, gpt, four, "tensor = 2\nzero = 3\n"},
           {4, same_widths, four, "context = 2\n"},
           {4, same_widths, four, "context = 4\nzero = 1\n"},
           {2, gpt, four, stages},
           {4, gpt, four, stages + "zero = 1\n"},
           {4, gpt, four, stages + "zero = 2\n"},
           {4, gpt, four, stages + "zero = 3\n"},
           {4, gpt, four, stages + "zero = 3\nreshard_after_forward = false\n"},
           {8, gpt, four, stages + "zero = 3\ntensor = 2\nschedule = zero_bubble\n"},
           {4, gpt, four, stages + "tensor = 2\n"},
           {2, gpt, four, stages + "schedule = gpipe\n"},
           {2, gpt, four, stages + "schedule = zero_bubble\n"},
           {2, gpt, four,
            "pipeline = 2\nmicro_batches = 4\nsplit = h.1, h.2, h.3\nvirtual_stages = 2\nschedule = interleaved\n"}}) {
    INFO(ranks << " ranks\n" << train << parallel);
    const TrainingJob job(model + adamw + train + "[parallel]\n" + parallel);
    const RankUse run = measured(job, ranks).use;
    const ComputedStep step = computed(job, ranks);
    check_equal(step.use, run, 0.05);
    // In its first step a stage says what shape its results have.
    CHECK(static_cast<double>(*step.sent) == Approx(sent_by(job.config(), ranks, run)).epsilon(0.0005));
  }
}

TEST_CASE("a step without values chooses all experts equally often") {
  const TextFile text_file;
  const TrainingJob job(text_file.keys({.context = 32, .layers = 2, .width = 64}) +
                        "experts = 4\n[train]\nmax_steps = 2\nglobal_batch_size = 16\n[parallel]\nexpert = 2\n");
  const RankUse run = measured(job, 2).use, use = computed(job, 2).use;
  CHECK(use.parameters == run.parameters);
  CHECK(use.gradients == run.gradients);
  CHECK(use.optimizer == run.optimizer);
  CHECK(use.activations < run.activations);  // a fresh router is not quite fair: one rank gets more tokens
  CHECK(use.shared_parameters == run.shared_parameters);
  CHECK(use.shared_experts == run.shared_experts);
  CHECK(use.sent_within == Approx(run.sent_within).epsilon(0.2));
}

TEST_CASE("a step without values takes what models of images and their optimizers take") {
  const std::string train = "[train]\nmax_steps = 2\nbatch_size = 16\n";
  for (const auto& [data, model, optimizer] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {digits, "cnn_bn", "sgd\nmomentum = 0.9"},
           {digits, "cnn", "muon"},
           {digits, "mlp", "lamb"},
           {digits, "mlp", "rmsprop\nmomentum = 0.9\ncentered = true"},
           {digits, "transformer", "adagrad"},
           {"[data]\nname = cifar10\nsamples = 64\ntest_samples = 8\n", "resnet18", "lars"}}) {
    INFO(model << ", " << optimizer);
    const TrainingJob job(data + "[model]\nname = " + model + "\n[optim]\nname = " + optimizer + "\n" + train);
    check_equal(computed(job, 1).use, measured(job, 1).use, 0.1);
  }
}

// Both are of the same code; the scaled one runs it with a few blocks a stage, and two and three stages.
TEST_CASE("the figures of few blocks and stages, scaled, are those of all") {
  const TextFile text_file;
  const std::string gpt = text_file.keys({.context = 32, .layers = 24, .width = 64, .heads = 8}) + adamw;
  for (const auto& [ranks, parallel] :
       std::vector<std::pair<int, std::string>>{{64, ""},
                                                {64, "zero = 1\n"},
                                                {64, "zero = 2\n"},
                                                {64, "zero = 3\n"},
                                                {64, "tensor = 8\nsequence = true\n"},
                                                {64, "tensor = 4\nzero = 3\n"},
                                                {64, "context = 4\n"},
                                                {64, "pipeline = 2\nmicro_batches = 8\n"},
                                                {64, "pipeline = 2\nmicro_batches = 8\nzero = 1\n"},
                                                {64, "pipeline = 4\nmicro_batches = 8\nzero = 3\n"},
                                                {64, "pipeline = 4\nmicro_batches = 16\ntensor = 2\nzero = 1\n"},
                                                {64, "pipeline = 8\nmicro_batches = 4\n"},
                                                {64, "pipeline = 8\nmicro_batches = 16\nschedule = gpipe\n"},
                                                {64, "pipeline = 8\nmicro_batches = 16\nschedule = zero_bubble\n"},
                                                {64, "pipeline = 8\nmicro_batches = 32\n"}}) {
    INFO(parallel);
    const TrainingJob job(gpt + "[train]\nglobal_batch_size = 512\n[parallel]\n" + parallel);
    const auto& layout = job.datasets().train->layout();
    const ComputedStep scaled = compute_step(job.config(), layout, ranks);
    // Stages are cut evenly in both, and not by the operations of the output layer, which is large here.
    TrainConfig even = job.config();
    const int stages = even.parallel.ranks.on("pipeline");
    for (int s = 1; s < stages; ++s) even.parallel.split += (s > 1 ? ", h." : "h.") + std::to_string(s * 24 / stages);
    const ComputedStep whole = whole_step(even, layout, ranks);
    CHECK(scaled.computed_blocks < scaled.blocks);
    for (const auto figure : {&RankUse::parameters, &RankUse::gradients, &RankUse::optimizer, &RankUse::activations,
                              &RankUse::gathered, &RankUse::operations})
      CHECK(scaled.use.*figure == Approx(whole.use.*figure).epsilon(0.05));
    CHECK(static_cast<double>(*scaled.sent) == Approx(static_cast<double>(*whole.sent)).epsilon(0.02));
  }
}

TEST_CASE("layouts of one job are computed from steps in common, and have the figures of each by itself") {
  const TextFile text_file;
  const std::string gpt = text_file.keys({.context = 32, .layers = 24, .width = 64, .heads = 8}) + adamw;
  const auto config_of = [&](const std::string& parallel) {
    return TrainingJob(gpt + "[train]\nglobal_batch_size = 512\n[parallel]\n" + parallel).config();
  };
  const TrainingJob job(gpt);
  const plugin::Registry registry;
  DrySteps steps(job.datasets().train->layout(), registry);
  for (const std::string parallel :
       {"", "zero = 1\n", "pipeline = 2\nmicro_batches = 8\n", "pipeline = 2\nmicro_batches = 8\nzero = 1\n",
        "pipeline = 4\nmicro_batches = 16\nzero = 1\n", "pipeline = 4\nmicro_batches = 16\ntensor = 2\nzero = 1\n",
        "pipeline = 4\nmicro_batches = 16\ncontext = 2\nzero = 1\n"}) {
    INFO(parallel);
    const TrainConfig config = config_of(parallel);
    const ComputedStep own = compute_step(config, job.datasets().train->layout(), 64);
    const ComputedStep common = compute_step(config, 64, steps);
    CHECK(common.use.memory() == own.use.memory());
    CHECK(common.sent == own.sent);
    CHECK(common.operations == own.operations);
  }
}

TEST_CASE("the memory of sharded parameters is scaled from as many blocks as are gathered and reduced at a time") {
  const TextFile text_file;
  const std::string precision = GENERATE("fp32", "bf16");
  // Few activations beside the parameters.
  const TrainingJob job(text_file.keys({.context = 4, .layers = 16, .width = 128, .heads = 4}) + adamw +
                        "[train]\nbatch_size = 1\nprecision = " + precision + "\n[parallel]\nzero = 3\n");
  const auto& layout = job.datasets().train->layout();
  const ComputedStep scaled = compute_step(job.config(), layout, 64);
  const ComputedStep whole = whole_step(job.config(), layout, 64);
  CHECK(scaled.computed_blocks < scaled.blocks);
  CHECK(scaled.use.activations == Approx(whole.use.activations).epsilon(0.01));
  CHECK(scaled.use.gathered == Approx(whole.use.gathered).epsilon(0.01));
}

TEST_CASE("a step of 1,024 ranks of a GPT of 70 billion parameters is computed without its memory") {
  const TextFile text_file;
  const std::string text = text_file.keys({.context = 2048, .layers = 87, .width = 8192, .heads = 64}) +
                           "context = 2048\nvocabulary = 32768\n" + adamw +
                           "[train]\nprecision = bf16\nbatch_size = 1\n[parallel]\ntensor = 8\npipeline = 4\n"
                           "micro_batches = 16\nzero = 1\n";
  const TrainingJob job(text);
  const ComputedStep step = compute_step(job.config(), job.datasets().train->layout(), 1024);
  CHECK(step.blocks == 87);
  // 22 blocks of 12 width^2 weights, and the embedding, by 8 tensor-parallel ranks, in float32.
  const double weights = (22.0 * 12 * 8192 * 8192 + 32768.0 * 8192) / 8;
  CHECK(step.use.parameters == Approx(4 * weights).epsilon(0.01));
  CHECK(step.use.gradients == Approx(4 * weights).epsilon(0.01));
  CHECK(step.use.optimizer == Approx(8 * weights / 32).epsilon(0.01));
  CHECK(step.use.activations > 0);
  CHECK(*step.sent > 2 * 4 * weights * 31 / 32);
}
