#include "ddprun/worker/trainer/train_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "ddprun/common/error.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/trainer/preemption.h"

namespace ddprun::trainer {
namespace {

std::vector<std::string> texts(const std::vector<std::string_view>& names) {
  return {names.begin(), names.end()};
}

constexpr double most = 1e9;  // of counts that are multiplied with each other

void bind_model(Settings& s, TrainConfig::Model& m) {
  s.add("model.name", m.name, {.help = "network to train", .choices = texts(nn::model_names())});
  s.add("model.hidden", m.hidden, {.help = "sizes of the hidden layers of mlp, such as 128 64"});
  s.add("model.dropout", m.dropout,
        {.help = "probability of dropping an activation behind a hidden layer of mlp", .min = 0, .max = 0.99});
}

void bind_data(Settings& s, TrainConfig::Data& d) {
  s.add(
      "data.name", d.name,
      {.help =
           "mnist: IDX files in data.dir, and generated digits when the default folder lacks them; digits: generated; "
           "random: random tensors with a linear rule to learn",
       .choices = {"mnist", "digits", "random"}});
  s.add("data.dir", d.dir,
        {.help = "folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                 "t10k-labels-idx1-ubyte, each plain or .gz (mnist)"});
  s.add("data.shuffle", d.shuffle, {.help = "a new order each epoch, as PyTorch's DistributedSampler"});
  s.add("data.drop_last", d.drop_last,
        {.help = "leave out the samples that do not divide by the world size instead of repeating the first ones"});
  s.add("data.workers", d.workers,
        {.help = "threads a rank that prepare batches; 0 prepares them between steps", .min = 0, .max = 64});
  s.add("data.prefetch", d.prefetch, {.help = "batches prepared ahead at most", .min = 1, .max = 1024});
  s.add("data.normalise", d.normalise,
        {.help = "grey levels to MNIST's mean 0 and standard deviation 1 (mnist, digits)"});
  s.add("data.samples", d.samples,
        {.help = "generated samples to learn from (digits, random)", .min = 1, .max = 100'000'000});
  s.add("data.test_samples", d.test_samples,
        {.help = "generated samples to test on (digits, random)", .min = 1, .max = 100'000'000});
  s.add("data.seed", d.seed, {.help = "of the generated samples (digits, random)", .min = 0});
  s.add("data.shape", d.shape, {.help = "of a sample, such as 16 or 1x28x28 (random)"});
  s.add("data.outputs", d.outputs, {.help = "numbers to predict, or classes (random)", .min = 1, .max = 1'000'000});
  s.add("data.labels", d.labels, {.help = "targets are class labels instead of numbers (random)"});
  s.add("data.noise", d.noise, {.help = "standard deviation of the noise on the outputs (random)", .min = 0});
}

void bind_train(Settings& s, TrainConfig::Train& t) {
  s.add("train.epochs", t.epochs, {.help = "passes over the data", .min = 1, .max = most});
  s.add("train.batch_size", t.batch_size,
        {.help = "per rank and micro-batch", .unit = "samples", .min = 1, .max = most});
  s.add("train.max_steps", t.max_steps,
        {.help = "stop after so many optimizer steps; 0: at the end of the epochs", .min = 0});
  s.add("train.seed", t.seed, {.help = "of initial parameters, data order and dropout", .min = 0});
  s.add("train.accumulate", t.accumulate,
        {.help = "micro-batches a step; gradients are reduced once a step", .min = 1, .max = most});
  s.add("train.log_every", t.log_every,
        {.help = "a line on standard output each so many steps; 0: none", .unit = "steps", .min = 0});
  s.add("train.check_replicas", t.check_replicas,
        {.help = "after every step, compare the parameters of all ranks bit for bit and stop when they differ"});
  s.add(
      "train.preempt_signal", t.preempt_signal,
      {.help = "signal that requests preemption, at any rank: all ranks stop after the same step, with a checkpoint of "
               "it and exit code 75; without a checkpoint.dir the signal keeps its default action",
       .choices = PreemptionListener::names()});
}

void bind_eval(Settings& s, TrainConfig::Eval& e) {
  s.add("eval.batch_size", e.batch_size, {.help = "per rank", .unit = "samples", .min = 1, .max = most});
  s.add("eval.every_epochs", e.every_epochs, {.help = "evaluate each so many epochs; 0: at the end alone", .min = 0});
}

void bind_optim(Settings& s, TrainConfig::Optim& o) {
  s.add("optim.name", o.name, {.help = "optimizer", .choices = texts(optim::optimizer_names())});
  s.add("optim.lr", o.lr, {.help = "learning rate", .min = 0});
  s.add("optim.momentum", o.momentum, {.help = "of sgd", .min = 0, .max = 1});
  s.add("optim.weight_decay", o.weight_decay, {.help = "added to the gradient, times the parameter", .min = 0});
  s.add("optim.beta1", o.beta1, {.help = "of adam: decay of the mean of gradients", .min = 0, .max = 1});
  s.add("optim.beta2", o.beta2, {.help = "of adam: decay of the mean of their squares", .min = 0, .max = 1});
  s.add("optim.eps", o.eps, {.help = "of adam: added to the denominator", .min = 0});
}

void bind_rest(Settings& s, TrainConfig& c) {
  s.add("dist.backend", c.dist.backend,
        {.help = "how ranks exchange data; auto: shared memory on one host, hierarchical on several, else gloo; one of "
                 "`auto`, `gloo`, `shm`, `hierarchical`"});
  s.add("dist.timeout", c.dist.timeout,
        {.help = "of an operation, for ranks that live and do not come to it", .unit = "s", .min = 0.001, .max = 1e7});
  s.add("dist.freeze_bound", c.dist.freeze_bound,
        {.help = "after which a rank that gives no sign of life is lost; 0: never", .unit = "s", .min = 0, .max = 1e7});
  s.add("dist.staging_kb", c.dist.staging_kb,
        {.help = "of each of a rank's two pieces of staging memory, where ranks share memory; a multiple of 4",
         .unit = "KiB",
         .min = 4,
         .max = 1'048'576});
  s.add("dist.bucket_mb", c.dist.bucket_mb,
        {.help = "gradients are exchanged in buckets of at most this size", .unit = "MiB", .min = 0.001, .max = 1e6});
  s.add("checkpoint.dir", c.checkpoint.dir,
        {.help = "folder of the checkpoints; a run starts from the newest one in it. Empty: none are written"});
  s.add("checkpoint.every_steps", c.checkpoint.every_steps,
        {.help = "write one each so many steps; 0: at the end of each epoch", .unit = "steps", .min = 0});
  s.add("checkpoint.keep", c.checkpoint.keep, {.help = "newest ones to keep", .min = 1, .max = 1'000'000});
  s.add("metrics.file", c.metrics.file, {.help = "JSON lines, one a step and one an evaluation (rank 0). Empty: none"});
}

[[noreturn]] void reject(const Settings& settings, std::string_view key, const std::string& what) {
  const auto* setting = settings.find(key);
  throw make_error(Errc::usage, "{}: {} = {}: {}", setting->source.where, key, setting->print(), what);
}

void check_extents(const Settings& settings, std::string_view key, const std::string& text, bool may_be_empty) {
  try {
    if (parse_extents(text).empty() && !may_be_empty) throw make_error(Errc::usage, "expected at least one size");
  } catch (const Error& e) {
    reject(settings, key, e.what());
  }
}

// What the smallest layers of the CNN can take.
void check_image(const Settings& settings, const std::vector<std::int64_t>& shape) {
  if (shape.size() == 3 && shape[1] >= 16 && shape[2] >= 16) return;
  reject(settings, "data.shape", "model cnn takes channels, height and width, at least 1x16x16");
}

// Not choices of the setting: a name that other programs accept deserves the reason.
void check_backend(const Settings& settings, const std::string& name) {
  if (name == "nccl")
    reject(settings, "dist.backend",
           "NCCL exchanges the memory of GPUs, and tensors are in host memory so far: use auto");
  if (name != "auto" && name != "gloo" && name != "shm" && name != "hierarchical")
    reject(settings, "dist.backend", "expected one of auto, gloo, shm, hierarchical");
}

}  // namespace

void bind(Settings& settings, TrainConfig& config) {
  bind_model(settings, config.model);
  bind_data(settings, config.data);
  bind_train(settings, config.train);
  bind_eval(settings, config.eval);
  bind_optim(settings, config.optim);
  bind_rest(settings, config);
}

std::string reference_page() {
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  return "# Keys of a train.cfg\n\n"
         "Made by `ddprun-worker --reference`. On the command line a key is written `--section.key=value`.\n" +
         settings.reference();
}

std::vector<std::int64_t> parse_extents(const std::string& text) {
  std::vector<std::int64_t> extents;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" ,x", at)) != std::string::npos) {
    const auto end = std::min(text.find_first_of(" ,x", at), text.size());
    std::int64_t extent = 0;
    const auto [stop, status] = std::from_chars(text.data() + at, text.data() + end, extent);
    if (status != std::errc{} || stop != text.data() + end || extent < 1 || extent > 1'000'000)
      throw make_error(Errc::usage, "expected sizes from 1 to 1000000, such as 128 64 or 1x28x28");
    extents.push_back(extent);
    at = end;
  }
  return extents;
}

void validate(const TrainConfig& c, const Settings& settings) {
  check_extents(settings, "model.hidden", c.model.hidden, true);
  check_extents(settings, "data.shape", c.data.shape, false);
  if (c.data.name == "random" && c.data.labels && c.data.outputs < 2)
    reject(settings, "data.outputs", "labels need at least 2 classes");
  if (c.model.name == "cnn" && c.data.name == "random") check_image(settings, parse_extents(c.data.shape));
  if (c.optim.beta1 >= 1) reject(settings, "optim.beta1", "expected a number below 1");
  if (c.optim.beta2 >= 1) reject(settings, "optim.beta2", "expected a number below 1");
  check_backend(settings, c.dist.backend);
  if (c.dist.staging_kb % 4 != 0) reject(settings, "dist.staging_kb", "expected a multiple of 4");
  if (c.checkpoint.dir.empty() && c.checkpoint.every_steps > 0)
    reject(settings, "checkpoint.every_steps", "checkpoint.dir has to be given as well");
}

std::map<std::string, std::string> settings_that_decide(const Settings& settings) {
  static constexpr std::array<std::string_view, 12> others{"train.epochs",
                                                           "train.max_steps",
                                                           "train.log_every",
                                                           "train.check_replicas",
                                                           "train.preempt_signal",
                                                           "data.dir",
                                                           "data.workers",
                                                           "data.prefetch",
                                                           "eval.",
                                                           "dist.",
                                                           "checkpoint.",
                                                           "metrics."};
  std::map<std::string, std::string> deciding;
  for (const auto& setting : settings.all()) {
    const auto is_prefix = [&](std::string_view prefix) { return setting.key.starts_with(prefix); };
    if (std::none_of(others.begin(), others.end(), is_prefix)) deciding[setting.key] = setting.print();
  }
  return deciding;
}

}  // namespace ddprun::trainer
