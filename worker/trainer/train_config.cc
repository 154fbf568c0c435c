#include "ddprun/worker/trainer/train_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <string_view>

#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/data/digits.h"
#include "ddprun/worker/data/patterns.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/reducer/built_in_hooks.h"
#include "ddprun/worker/tasks/tasks.h"
#include "ddprun/worker/trainer/lr_schedule.h"
#include "ddprun/worker/trainer/model_devices.h"
#include "ddprun/worker/trainer/preemption.h"
#include "ddprun/worker/trainer/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

std::vector<std::string> texts(const std::vector<std::string_view>& names) {
  return {names.begin(), names.end()};
}

constexpr std::array<std::string_view, 7> built_in_data{"mnist",  "cifar10", "image_folder", "digits",
                                                        "random", "text",    "tokens"};

constexpr double most = 1e9;  // of counts that are multiplied with each other

// The built-in names and the plugin's.
std::vector<std::string> joined(std::vector<std::string> names, const std::vector<std::string>& added) {
  for (const auto& name : added) {
    if (std::ranges::count(names, name) > 0)
      throw make_error(Errc::usage, "model.plugin: the plugin adds the name {}, which exists", name);
    names.push_back(name);
  }
  return names;
}

void bind_model(Settings& s, TrainConfig::Model& m, const plugin::Registry& registry) {
  s.add("model.name", m.name,
        {.help = "network to train", .choices = joined(texts(nn::model_names()), registry.models.names())});
  s.add("model.plugin", m.plugin,
        {.help = "shared library with models, data sets and tasks, whose names model.name, data.name and train.task "
                 "then accept; its code is executed"});
  s.add("model.hidden", m.hidden, {.help = "sizes of the hidden layers of mlp, such as 128 64"});
  s.add("model.dropout", m.dropout,
        {.help = "probability of dropping an activation: after a hidden layer of mlp; in gpt of the embeddings, the "
                 "attention weights and the results of attention and MLP",
         .min = 0,
         .max = 0.99});
  s.add("model.stem", m.stem,
        {.help = "first layers of resnet18 and resnet50: cifar, 3x3 with stride 1, for small images; imagenet, 7x7 "
                 "with stride 2 "
                 "and max-pooling",
         .choices = texts(nn::resnet_stems())});
  s.add("model.channels", m.channels,
        {.help = "channels of the first layer of resnet18 and resnet50; the last one has 8 times as many, in resnet50 "
                 "32 times",
         .min = 1,
         .max = 1024});
}

void bind_fine_tuning(Settings& s, TrainConfig::Model& m) {
  s.add("model.weights", m.weights,
        {.help = "safetensors file with which training begins in place of random numbers: a checkpoint's model, or "
                 "weights of torchvision or Hugging Face. Empty: none"});
  s.add("model.weights_prefix", m.weights_prefix,
        {.help = "take only the tensors of model.weights whose names begin with this, without it: transformer. for a "
                 "GPT2LMHeadModel"});
  s.add("model.weights_except", m.weights_except,
        {.help = "parameters and buffers that begin with random numbers nevertheless, whether model.weights has them "
                 "or not: paths, modules or patterns such as fc layer4.*.conv2.weight, separated by blanks"});
  s.add("model.freeze", m.freeze,
        {.help = "parameters that are not trained: paths, modules or patterns, as in model.weights_except"});
}

void bind_gpt(Settings& s, TrainConfig::Model& m) {
  s.add("model.preset", m.preset, {.help = "sizes of gpt where none are given", .choices = texts(nn::gpt_presets())});
  s.add("model.layers", m.layers, {.help = "blocks of gpt; 0: the preset's", .min = 0, .max = 1000});
  s.add("model.heads", m.heads, {.help = "attention heads of a block of gpt; 0: the preset's", .min = 0, .max = 1000});
  s.add("model.width", m.width,
        {.help = "features of a token in gpt, a multiple of the heads; 0: the preset's", .min = 0, .max = 65536});
  s.add("model.context", m.context,
        {.help = "number of tokens that gpt sees at most; 0: the preset's", .min = 0, .max = 1'000'000});
  s.add("model.vocabulary", m.vocabulary,
        {.help = "number of tokens that gpt knows; 0: the preset's, or where it has none the data set's",
         .min = 0,
         .max = 1'000'000});
  s.add("model.bias", m.bias, {.help = "biases in the linear layers and normalisations of gpt"});
}

void bind_data(Settings& s, TrainConfig::Data& d, const plugin::Registry& registry) {
  s.add(
      "data.name", d.name,
      {.help = "mnist, cifar10: the files in data.dir, or generated digits or images when the default folder does not "
               "hold them; image_folder: PNG and JPEG files in data.dir; digits: generated digits; random: random "
               "tensors with a linear rule to learn; text: the "
               "bytes of input.txt in data.dir, of which the last tenth is the test set; tokens: 16-bit tokens in the "
               "files train*.bin and val*.bin in data.dir",
       .choices = joined(texts({built_in_data.begin(), built_in_data.end()}), registry.datasets.names())});
  s.add("data.dir", d.dir,
        {.help = "folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                 "t10k-labels-idx1-ubyte, each plain or .gz (mnist), with data_batch_1.bin to data_batch_5.bin and "
                 "test_batch.bin (cifar10), with a folder for each class in train and val (image_folder), with "
                 "input.txt (text), or with train*.bin and val*.bin (tokens). Empty: "
                 "data/mnist, data/cifar10, data/image_folder, data/text, data/tokens"});
  s.add("data.shuffle", d.shuffle, {.help = "shuffle the samples in each epoch, as PyTorch's DistributedSampler"});
  s.add("data.drop_last", d.drop_last,
        {.help = "leave out the last samples of an epoch that do not divide by the world size, or that do not fill a "
                 "step of train.global_batch_size; otherwise each sample is trained once per epoch"});
  s.add("data.workers", d.workers,
        {.help = "threads per rank that prepare batches; 0: batches are prepared between steps", .min = 0, .max = 64});
  s.add("data.prefetch", d.prefetch, {.help = "maximum number of batches prepared in advance", .min = 1, .max = 1024});
  s.add("data.normalise", d.normalise,
        {.help = "normalise levels by the mean and standard deviation of MNIST (mnist, digits), or of each channel of "
                 "CIFAR-10 (cifar10) or ImageNet (image_folder)"});
  s.add("data.image_size", d.image_size,
        {.help = "height and width of a sample: a picture is scaled so that its shorter side has this size, then the "
                 "square in its middle is taken (image_folder)",
         .unit = "pixels",
         .min = 1,
         .max = 4096});
  s.add("data.crop_padding", d.crop_padding,
        {.help = "black pixels added at each side of a training image, of which then a random part of the old size is "
                 "taken; 0: none",
         .unit = "pixels",
         .min = 0,
         .max = 1024});
  s.add("data.flip", d.flip, {.help = "mirror every other training image, chosen at random, left to right"});
  s.add("data.samples", d.samples,
        {.help = "number of generated training samples (digits, random, images in place of cifar10)",
         .min = 1,
         .max = 100'000'000});
  s.add("data.test_samples", d.test_samples,
        {.help = "number of generated test samples (digits, random, images in place of cifar10)",
         .min = 1,
         .max = 100'000'000});
  s.add("data.seed", d.seed,
        {.help = "seed of the generated samples (digits, random, images in place of cifar10)", .min = 0});
  s.add("data.shape", d.shape, {.help = "shape of a sample, such as 16 or 1x28x28 (random)"});
  s.add("data.context", d.context,
        {.help = "tokens of a sample (text, tokens)", .unit = "tokens", .min = 1, .max = 1'000'000});
  s.add("data.tokenizer", d.tokenizer,
        {.help = "folder with vocab.json and merges.txt, as GPT-2's or those of ddprun-worker tokenize: the tokens of "
                 "text are those of this byte-pair encoding. Empty: they are bytes"});
  s.add("data.vocabulary", d.vocabulary, {.help = "number of different tokens (tokens)", .min = 2, .max = 65'536});
  s.add("data.outputs", d.outputs,
        {.help = "number of outputs to predict, or of classes (random)", .min = 1, .max = 1'000'000});
  s.add("data.labels", d.labels, {.help = "targets are class labels instead of numbers (random)"});
  s.add("data.noise", d.noise, {.help = "standard deviation of the noise on the outputs (random)", .min = 0});
}

void bind_train(Settings& s, TrainConfig::Train& t, const plugin::Registry& registry) {
  s.add("train.task", t.task,
        {.help =
             "what is learnt; auto: classification from class labels, language_modelling from tokens, regression from "
             "numbers",
         .choices = joined(tasks::task_names(), registry.tasks.names())});
  s.add("train.epochs", t.epochs, {.help = "passes over the data", .min = 1, .max = most});
  s.add("train.batch_size", t.batch_size,
        {.help = "samples per rank and micro-batch; 0: from train.global_batch_size", .min = 0, .max = most});
  s.add("train.global_batch_size", t.global_batch_size,
        {.help = "samples of an optimizer step of all ranks together, with any number of ranks; 0: world size x "
                 "train.batch_size x train.accumulate",
         .unit = "samples",
         .min = 0,
         .max = most});
  s.add("train.max_steps", t.max_steps,
        {.help = "number of optimizer steps after which training stops; 0: at the end of the last epoch", .min = 0});
  s.add("train.seed", t.seed, {.help = "seed of the initial parameters, the data order and dropout", .min = 0});
  s.add("train.accumulate", t.accumulate,
        {.help = "micro-batches per optimizer step; gradients are reduced once per step", .min = 1, .max = most});
  s.add("train.precision", t.precision,
        {.help = "type in which matrix products and convolutions compute, as torch.autocast; parameters, gradients and "
                 "the optimizer stay fp32",
         .choices = {"fp32", "bf16", "fp16"}});
  s.add(
      "train.winograd", t.winograd,
      {.help = "use Winograd's algorithm for convolutions of 3x3 where the processor has a fast one; faster, and less "
               "exact in float32"});
  s.add("train.quantization_aware", t.quantization_aware,
        {.help = "train with inputs and weights rounded as ddprun-worker quantize rounds them, in the layers that it "
                 "replaces; it then takes the ranges of inputs that training has learnt"});
  s.add("train.recompute", t.recompute,
        {.help =
             "what keeps nothing but its input for the backward pass, which computes it again: none; blocks: those of "
             "gpt and resnet18; all: every layer of a container and every module that has modules. The same bits for "
             "less memory and more time",
         .choices = {"none", "blocks", "all"}});
  s.add("train.memory_report", t.memory_report,
        {.help = "at the end, print a table of rank 0's memory by part of the model: parameters, gradients, optimizer, "
                 "and what operations keep for the backward pass"});
  s.add("train.loss_scale", t.loss_scale,
        {.help = "factor of the loss at first, with train.precision = fp16, as torch.amp.GradScaler; a step whose "
                 "gradients are not finite is skipped",
         .min = 1e-6,
         .max = 1e30});
  s.add("train.loss_scale_growth", t.loss_scale_growth,
        {.help = "factor of the loss scale after train.loss_scale_growth_interval steps in a row with finite gradients",
         .min = 1,
         .max = 1024});
  s.add("train.loss_scale_backoff", t.loss_scale_backoff,
        {.help = "factor of the loss scale after a step that is skipped", .min = 0.001, .max = 0.999});
  s.add("train.loss_scale_growth_interval", t.loss_scale_growth_interval,
        {.help = "steps after which the loss scale grows", .unit = "steps", .min = 1});
  s.add("train.log_every", t.log_every,
        {.help = "number of steps between two progress lines on standard output; 0: none", .unit = "steps", .min = 0});
  s.add("train.check_replicas", t.check_replicas,
        {.help = "after every step, compare the parameters of all ranks bit for bit and stop when they differ"});
  s.add("train.detect_anomaly", t.detect_anomaly,
        {.help = "check every result and every gradient, and stop with an error that names the operation and the "
                 "module that produced the first NaN or infinity; slow"});
  s.add(
      "train.stop_on_nonfinite", t.stop_on_nonfinite,
      {.help = "stop with an error, before a checkpoint is written, when a training or test loss is infinite or not a "
               "number; otherwise warn once and continue"});
  s.add(
      "train.preempt_signal", t.preempt_signal,
      {.help = "signal that requests preemption, at any rank: all ranks stop after the same step, with a checkpoint of "
               "it and exit code 75; without a checkpoint.dir the signal keeps its default action",
       .choices = PreemptionListener::names()});
}

void bind_eval(Settings& s, TrainConfig::Eval& e) {
  s.add("eval.batch_size", e.batch_size, {.help = "samples per rank and batch", .min = 1, .max = most});
  s.add("eval.every_epochs", e.every_epochs,
        {.help = "number of epochs between two evaluations; 0: only at the end", .min = 0});
}

void bind_optim(Settings& s, TrainConfig::Optim& o) {
  s.add("optim.name", o.name, {.help = "optimizer", .choices = texts(optim::optimizer_names())});
  s.add("optim.lr", o.lr, {.help = "learning rate", .min = 0});
  s.add("optim.momentum", o.momentum, {.help = "momentum of sgd", .min = 0, .max = 1});
  s.add("optim.dampening", o.dampening,
        {.help = "share of the gradient that does not enter the momentum of sgd, from its second step on",
         .min = 0,
         .max = 1});
  s.add("optim.nesterov", o.nesterov, {.help = "Nesterov's variant of the momentum of sgd"});
  s.add("optim.weight_decay", o.weight_decay,
        {.help = "sgd, adam: factor of the parameter that is added to its gradient; adamw: the parameter shrinks by "
                 "learning rate x this, apart from the gradient",
         .min = 0});
  s.add("optim.decay_one_dimensional", o.decay_one_dimensional,
        {.help = "optim.weight_decay applies to biases and to the weights of norms too, which have one dimension"});
  s.add("optim.beta1", o.beta1, {.help = "decay rate of the mean of gradients (adam, adamw)", .min = 0, .max = 1});
  s.add("optim.beta2", o.beta2,
        {.help = "decay rate of the mean of squared gradients (adam, adamw)", .min = 0, .max = 1});
  s.add("optim.eps", o.eps, {.help = "number that is added to the denominator (adam, adamw)", .min = 0});
  s.add("optim.clip_norm", o.clip_norm,
        {.help = "scales the gradients of all parameters down to this Euclidean norm, as clip_grad_norm_; 0: not",
         .min = 0});
  s.add("optim.clip_value", o.clip_value,
        {.help = "limits each element of a gradient to this magnitude, as clip_grad_value_; 0: not", .min = 0});
}

// PyTorch's names where it has the same.
void bind_schedule(Settings& s, TrainConfig::Optim& o) {
  s.add("optim.schedule", o.schedule,
        {.help = "learning rate over the time, as torch.optim.lr_scheduler has it: StepLR, MultiStepLR, "
                 "CosineAnnealingLR, LinearLR, OneCycleLR; inverse_sqrt: optim.lr x sqrt(warmup / time)",
         .choices = LrSchedule::names()});
  s.add("optim.schedule_unit", o.schedule_unit,
        {.help = "what the schedule counts; epochs: the rate stays the same within an epoch",
         .choices = {"steps", "epochs"}});
  s.add("optim.schedule_length", o.schedule_length,
        {.help = "where cosine, linear and onecycle end, their warm-up included; 0: with the run, so that another "
                 "train.epochs or train.max_steps is another curve",
         .unit = "steps or epochs",
         .min = 0});
  s.add("optim.warmup", o.warmup,
        {.help = "time in which the learning rate rises linearly to that with which the schedule begins; 0: none",
         .unit = "steps or epochs",
         .min = 0});
  s.add("optim.warmup_start", o.warmup_start,
        {.help = "the warm-up begins with this factor of the rate with which it ends", .min = 0, .max = 1});
  s.add("optim.end_factor", o.end_factor,
        {.help = "factor of optim.lr with which cosine and linear end", .min = 0, .max = 1});
  s.add("optim.gamma", o.gamma, {.help = "factor of each decay of step and multistep", .min = 0, .max = 1});
  s.add("optim.step_size", o.step_size,
        {.help = "time between two decays of step", .unit = "steps or epochs", .min = 1});
  s.add("optim.milestones", o.milestones,
        {.help = "when multistep decays, such as 30 60 80, ascending, counted from the end of the warm-up"});
  s.add("optim.pct_start", o.pct_start,
        {.help = "share of onecycle in which the learning rate rises to optim.lr", .min = 0, .max = 1});
  s.add("optim.div_factor", o.div_factor, {.help = "onecycle begins with optim.lr divided by this", .min = 1});
  s.add("optim.final_div_factor", o.final_div_factor,
        {.help = "onecycle ends with its beginning divided by this", .min = 1});
}

void bind_rest(Settings& s, TrainConfig& c) {
  s.add("dist.backend", c.dist.backend,
        {.help = "how ranks exchange data; auto: shared memory on one host, hierarchical on several, else gloo; one of "
                 "`auto`, `gloo`, `shm`, `hierarchical`"});
  s.add("dist.timeout", c.dist.timeout,
        {.help = "timeout of a collective operation that a peer does not join although it is alive",
         .unit = "s",
         .min = 0.001,
         .max = 1e7});
  s.add("dist.freeze_bound", c.dist.freeze_bound,
        {.help = "time without a heartbeat after which a rank counts as lost; 0: never",
         .unit = "s",
         .min = 0,
         .max = 1e7});
  s.add("dist.staging_kb", c.dist.staging_kb,
        {.help = "size of each of the two staging buffers of a rank in shared memory; a multiple of 4",
         .unit = "KiB",
         .min = 4,
         .max = 1'048'576});
  s.add("dist.bucket_mb", c.dist.bucket_mb,
        {.help = "maximum size of a bucket of gradients that are reduced together",
         .unit = "MiB",
         .min = 0.001,
         .max = 1e6});
  s.add("checkpoint.dir", c.checkpoint.dir,
        {.help = "folder of the checkpoints; a run resumes from the newest one in it. Empty: none are written"});
  s.add(
      "checkpoint.every_steps", c.checkpoint.every_steps,
      {.help = "number of steps between two checkpoints; 0: one at the end of each epoch", .unit = "steps", .min = 0});
  s.add("checkpoint.keep", c.checkpoint.keep,
        {.help = "number of checkpoints to keep, the newest ones", .min = 1, .max = 1'000'000});
  s.add("checkpoint.keep_best", c.checkpoint.keep_best,
        {.help = "keep the checkpoint with the lowest loss of an evaluation too, in the folder best"});
  s.add("checkpoint.resume", c.checkpoint.resume,
        {.help = "auto: resume from the newest checkpoint, or start from step 0 when there is none; never: start from "
                 "step 0, after a restart too; require: fail when there is no checkpoint; best: resume from the one "
                 "that checkpoint.keep_best has kept, after a restart too, and fail when there is none",
         .choices = resume_names()});
  s.add("metrics.file", c.metrics.file,
        {.help = "JSON lines file with a record for each step and each evaluation, written by rank 0. Empty: none"});
}

// Where PyTorch has it, its names: those of DistributedDataParallel's arguments and PowerSGDState's.
void bind_parallel(Settings& s, TrainConfig::Parallel& p) {
  s.add("parallel.strategy", p.strategy,
        {.help = "ddp: each rank trains a replica on its part of the batch; data_parallel: with a replica "
                 "and a thread for each of parallel.devices",
         .choices = {"ddp", "data_parallel"}});
  s.add("parallel.devices", p.devices,
        {.help = "devices of a rank, such as cpu:0 cpu:1. With ddp the modules of the model are divided among them. "
                 "Empty: cpu:0"});
  s.add("parallel.split", p.split,
        {.help = "the first module on each device but the first, such as layer3, or of each stage of a pipeline, such "
                 "as h.2. Empty: by measured time"});
  s.add("parallel.zero", p.zero,
        {.help = "what is divided among the ranks (ZeRO); 0: nothing; 1: the optimizer's state and work; 2: gradients "
                 "as well; 3: parameters as well",
         .min = 0,
         .max = 3});
  s.add("parallel.reshard_after_forward", p.reshard_after_forward,
        {.help = "with parallel.zero = 3: free parameters after their forward pass and gather them again for their "
                 "backward pass"});
  s.add("parallel.shard_group", p.shard_group,
        {.help = "with parallel.zero = 2 or 3: divide among so many neighbouring ranks, and average over such groups; "
                 "0: among all ranks",
         .unit = "ranks",
         .min = 0});
  s.add("parallel.tensor", p.tensor,
        {.help = "so many neighbouring ranks compute a model's layers together, each with a part of their weights "
                 "(tensor parallelism); the number of ranks is a multiple of it",
         .unit = "ranks",
         .min = 1,
         .max = 1024});
  s.add("parallel.pipeline", p.pipeline,
        {.help = "stages of the model, each on another rank: ranks are a grid of pipeline x data, of which the second "
                 "varies faster",
         .unit = "ranks",
         .min = 1,
         .max = 1024});
  s.add("parallel.micro_batches", p.micro_batches,
        {.help = "parts of a step's samples of a data rank, which pass through the stages of parallel.pipeline, or of "
                 "several parallel.devices, one after the other. 0: no pipeline",
         .min = 0,
         .max = 1'000'000});
  s.add("parallel.schedule", p.schedule,
        {.help = "the order in which each stage computes: gpipe: all forward passes, then all backward passes; 1f1b: "
                 "one forward and one backward pass in turn; interleaved: with parallel.virtual_stages; zero_bubble: "
                 "gradients of weights apart (ZB-H1)",
         .choices = {"gpipe", "1f1b", "interleaved", "zero_bubble"}});
  s.add("parallel.virtual_stages", p.virtual_stages,
        {.help = "stages of each rank or device, for the interleaved schedule", .min = 1, .max = 1024});
  s.add(
      "parallel.sequence", p.sequence,
      {.help = "with parallel.tensor, model.name = gpt: of what is not divided, each of those ranks has a range of the "
               "positions (sequence parallelism); data.context is a multiple of parallel.tensor"});
  s.add("parallel.find_unused_parameters", p.find_unused_parameters,
        {.help = "a backward pass need not reach every parameter: which ones it reached is exchanged in each pass"});
  s.add(
      "parallel.static_graph", p.static_graph,
      {.help = "every backward pass reaches the parameters that the first one reached: which ones is exchanged once"});
  s.add("parallel.broadcast_buffers", p.broadcast_buffers,
        {.help = "copy rank 0's buffers, such as running statistics, to all ranks before each forward pass"});
  s.add("parallel.ignored_parameters", p.ignored_parameters,
        {.help = "parameters and buffers, such as fc.weight fc.bias, that stay each rank's own"});
  s.add("parallel.delay_all_reduce_named_params", p.delay_all_reduce_named_params,
        {.help = "parameters whose gradients are averaged after those of all others"});
  s.add("parallel.param_to_hook_all_reduce", p.param_to_hook_all_reduce,
        {.help = "the parameter with whose gradient that starts at the earliest. Empty: no matter when"});
  s.add("parallel.sync_batch_norm", p.sync_batch_norm,
        {.help = "batch norm takes its statistics over the samples of all ranks, as SyncBatchNorm"});
  s.add("parallel.hook", p.hook,
        {.help = "how gradients are averaged; one of `allreduce`, `fp16`, `bf16`, `int8`, `int8_channel`, `powersgd`, "
                 "`batched_powersgd`, or a+b: a compresses, b averages what a sends"});
  s.add("parallel.matrix_approximation_rank", p.matrix_approximation_rank,
        {.help = "rank of the matrices that powersgd sends", .min = 1, .max = 1024});
  s.add("parallel.start_powerSGD_iter", p.start_powerSGD_iter,
        {.help = "steps before powersgd compresses", .unit = "steps", .min = 0, .max = most});
  s.add("parallel.use_error_feedback", p.use_error_feedback,
        {.help = "powersgd adds what it left out of a gradient to the next one"});
  s.add("parallel.warm_start", p.warm_start, {.help = "powersgd begins with the factors of the step before"});
  s.add("parallel.min_compression_rate", p.min_compression_rate,
        {.help = "powersgd sends a matrix as it is unless its factors are more than so many times smaller",
         .min = 0,
         .max = most});
}

void bind_distill(Settings& s, TrainConfig::Distill& d) {
  s.add("distill.teacher", d.teacher, {.help = "network that teaches, one of model.name (train.task = distillation)"});
  s.add("distill.weights", d.weights, {.help = "its parameters: a safetensors file, such as a checkpoint's model"});
  s.add("distill.hidden", d.hidden, {.help = "sizes of its hidden layers, as model.hidden"});
  s.add("distill.channels", d.channels, {.help = "its channels, as model.channels", .min = 1, .max = 1024});
  s.add("distill.temperature", d.temperature,
        {.help = "divides the scores of both networks before they are compared: above 1 unlikely classes count more",
         .min = 0.01,
         .max = 1000});
  s.add("distill.weight", d.weight,
        {.help = "share of the loss that compares the networks; the rest is the labels' cross-entropy",
         .min = 0,
         .max = 1});
}

void bind_tokenize(Settings& s, TrainConfig::Tokenize& t) {
  s.add("tokenize.vocabulary", t.vocabulary,
        {.help = "number of tokens to learn, the 256 bytes included (ddprun-worker tokenize)",
         .unit = "tokens",
         .min = 256,
         .max = 1'000'000});
}

void bind_generate(Settings& s, TrainConfig::Generate& g) {
  s.add("generate.prompt", g.prompt, {.help = "text to continue (ddprun-worker generate)"});
  s.add("generate.tokens", g.tokens,
        {.help = "number of tokens to generate", .unit = "tokens", .min = 1, .max = 1'000'000});
  s.add("generate.temperature", g.temperature,
        {.help = "divides the scores: below 1 likely tokens become likelier; 0: always the most likely one",
         .min = 0,
         .max = 100});
  s.add("generate.top_k", g.top_k, {.help = "choose among so many of the most likely tokens; 0: among all", .min = 0});
  s.add("generate.seed", g.seed, {.help = "seed of the choice of tokens", .min = 0});
  s.add("generate.quantized", g.quantized,
        {.help = "generate with the quantised model in this file, made with the same quantize.mode, in place of the "
                 "checkpoint's"});
}

void bind_predict(Settings& s, TrainConfig::Predict& p) {
  s.add("predict.input", p.input,
        {.help = "samples to predict (ddprun-worker predict): an IDX file of images (mnist, digits), a file of "
                 "CIFAR-10's records (cifar10), a PNG or JPEG file (image_folder), or a .csv with the numbers of a "
                 "sample in each line. Empty: the test "
                 "set"});
  s.add("predict.output", p.output,
        {.help = "CSV file with the index, the predicted class and its probability of each sample, or its index and "
                 "outputs. Empty: standard output"});
  s.add("predict.quantized", p.quantized,
        {.help = "predict with the quantised model in this file, made with the same quantize.mode, in place of the "
                 "checkpoint's"});
}

void bind_quantize(Settings& s, TrainConfig::Quantize& q) {
  s.add("quantize.mode", q.mode,
        {.help = "how the inputs of quantised layers are rounded (ddprun-worker quantize); dynamic: over the range of "
                 "each batch; static: over the range of training samples, or the one that train.quantization_aware "
                 "has learnt; auto: static with train.quantization_aware, else dynamic",
         .choices = {"auto", "dynamic", "static"}});
  s.add("quantize.file", q.file, {.help = "safetensors file for the quantised model"});
  s.add("quantize.samples", q.samples,
        {.help = "number of training samples that calibrate a static model", .unit = "samples", .min = 1, .max = most});
}

void bind_profile(Settings& s, TrainConfig::Profile& p) {
  s.add("profile.steps", p.steps,
        {.help = "steps to record, after which a page says where their time went; 0: none, and 20 with ddprun-worker "
                 "profile",
         .unit = "steps",
         .min = 0,
         .max = 10'000});
  s.add("profile.warmup", p.warmup,
        {.help = "steps before those that are recorded", .unit = "steps", .min = 0, .max = 1'000'000});
  s.add(
      "profile.trace", p.trace,
      {.help = "file for the recorded steps of all ranks in Chrome's trace event format, which Perfetto opens. Empty: "
               "none"});
}

[[noreturn]] void reject(const Settings& settings, std::string_view key, const std::string& what) {
  const auto* setting = settings.find(key);
  throw make_error(Errc::usage, "{}: {} = {}: {}", setting->source.where, key, setting->print(), what);
}

void check_parallel(const TrainConfig::Parallel& p, const Settings& settings) {
  try {
    check_hook(p.hook);
  } catch (const Error& e) {
    reject(settings, "parallel.hook", e.what());
  }
  if (!p.param_to_hook_all_reduce.empty() && p.delay_all_reduce_named_params.empty())
    reject(settings, "parallel.param_to_hook_all_reduce",
           "parallel.delay_all_reduce_named_params has to be given as well");
  try {
    devices_of(p);
  } catch (const Error& e) {
    reject(settings, "parallel.devices", e.what());
  }
  if (p.devices.empty() && (p.strategy != "ddp" || (!p.split.empty() && p.pipeline == 1)))
    reject(settings, p.split.empty() ? "parallel.strategy" : "parallel.split",
           "parallel.devices has to be given as well");
  if (p.strategy == "data_parallel" && (!p.split.empty() || p.zero > 0))
    reject(settings, p.zero > 0 ? "parallel.zero" : "parallel.split", "data_parallel has whole replicas");
  if (p.shard_group > 0 && p.zero < 2)
    reject(settings, "parallel.shard_group", "parallel.zero = 2 or 3 has to be given as well");
  if (p.zero > 1 && !p.devices.empty())
    reject(settings, "parallel.devices", "parallel.zero = 2 and 3 have one device a rank");
  if (p.zero == 0) return;
  if (p.hook != "allreduce") reject(settings, "parallel.hook", "parallel.zero averages gradients in its own way");
  if (p.find_unused_parameters || p.static_graph || !p.ignored_parameters.empty())
    reject(settings, "parallel.zero",
           "updates are not divided with parallel.find_unused_parameters, static_graph or ignored_parameters");
}

void check_batch_size(const TrainConfig::Train& t, const Settings& settings) {
  if (t.batch_size == 0 && t.global_batch_size == 0)
    reject(settings, "train.batch_size", "expected a whole number from 1 to 1000000000");
  if (t.batch_size > 0 && t.global_batch_size > 0)
    reject(settings, "train.batch_size",
           fmt::format("train.global_batch_size = {} is given in the same place; give one of the two",
                       t.global_batch_size));
}

void check_extents(const Settings& settings, std::string_view key, const std::string& text, bool may_be_empty) {
  try {
    if (parse_extents(text).empty() && !may_be_empty) throw make_error(Errc::usage, "expected at least one size");
  } catch (const Error& e) {
    reject(settings, key, e.what());
  }
}

// Of keys that only make sense with a momentum.
void check_momentum(const TrainConfig::Optim& o, const Settings& settings, std::string_view key) {
  if (o.name != "sgd") reject(settings, key, fmt::format("optim.name = {} has no momentum, only sgd has", o.name));
  if (o.momentum == 0) reject(settings, key, "optim.momentum has to be given as well");
}

void check_optimizer(const TrainConfig::Optim& o, const Settings& settings) {
  if (o.beta1 >= 1) reject(settings, "optim.beta1", "expected a number below 1");
  if (o.beta2 >= 1) reject(settings, "optim.beta2", "expected a number below 1");
  if (o.nesterov) check_momentum(o, settings, "optim.nesterov");
  if (o.dampening > 0) check_momentum(o, settings, "optim.dampening");
  if (o.nesterov && o.dampening > 0)
    reject(settings, "optim.dampening", "optim.nesterov = true needs a momentum without dampening");
  if (o.clip_norm > 0 && o.clip_value > 0)
    reject(settings, "optim.clip_value",
           fmt::format("optim.clip_norm = {} is given as well; give one of the two", o.clip_norm));
}

void check_schedule(const TrainConfig::Optim& o, const Settings& settings) {
  check_extents(settings, "optim.milestones", o.milestones, o.schedule != "multistep");
  const auto milestones = parse_extents(o.milestones);
  if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) != milestones.end())
    reject(settings, "optim.milestones", "expected ascending numbers");
  if (o.schedule == "inverse_sqrt" && o.warmup == 0)
    reject(settings, "optim.schedule", "inverse_sqrt needs an optim.warmup");
  if (o.schedule_length > 0 && !LrSchedule::has_length(o.schedule))
    reject(settings, "optim.schedule_length", fmt::format("optim.schedule = {} has no end", o.schedule));
  if (o.schedule_length > 0 && o.warmup >= o.schedule_length)
    reject(settings, "optim.warmup", "expected less than optim.schedule_length");
}

// Products of settings, which may each be within bounds. Stays at the largest number instead of overflowing.
std::int64_t product(const std::vector<std::int64_t>& factors) {
  std::int64_t result = 1;
  for (const auto factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return std::numeric_limits<std::int64_t>::max();
  return result;
}

void check_size(const Settings& settings, std::string_view key, const char* what,
                const std::vector<std::int64_t>& sizes, std::int64_t limit) {
  if (product(sizes) > limit)
    reject(settings, key,
           fmt::format("{} of {} numbers is larger than the limit of {}", what, fmt::join(sizes, " x "), limit));
}

bool is_built_in(const TrainConfig::Model& model) {
  return std::ranges::count(nn::model_names(), model.name) > 0;
}

void check_tensor_parallel(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  if (p.sequence && (p.tensor == 1 || c.model.name != "gpt"))
    reject(settings, "parallel.sequence", "parallel.tensor and model.name = gpt have to be given as well");
  if (p.sequence && c.data.context % p.tensor != 0)
    reject(settings, "data.context", fmt::format("it has to be a multiple of parallel.tensor = {}", p.tensor));
  if (p.tensor == 1) return;
  const auto refuse = [&](std::string_view key) { reject(settings, key, "it does not go with parallel.tensor"); };
  if (p.zero > 0) refuse("parallel.zero");
  if (p.strategy != "ddp") refuse("parallel.strategy");
  if (!p.devices.empty()) refuse("parallel.devices");
  if (p.sync_batch_norm) refuse("parallel.sync_batch_norm");
  if (p.hook != "allreduce") refuse("parallel.hook");
  if (!p.ignored_parameters.empty()) refuse("parallel.ignored_parameters");
  if (c.train.quantization_aware) refuse("train.quantization_aware");
  if (!is_built_in(c.model)) refuse("model.name");
}
bool is_built_in(const TrainConfig::Data& data) {
  return std::ranges::count(built_in_data, data.name) > 0;
}

// What a pipeline does not go with.
void check_pipeline(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  const bool has_devices = parse_names(p.devices).size() > 1;
  if (p.micro_batches == 0) {
    if (p.pipeline > 1) reject(settings, "parallel.pipeline", "parallel.micro_batches has to be given as well");
    if (p.schedule != "1f1b") reject(settings, "parallel.schedule", "parallel.micro_batches has to be given as well");
    if (p.virtual_stages > 1)
      reject(settings, "parallel.virtual_stages", "parallel.micro_batches has to be given as well");
    return;
  }
  if (p.pipeline == 1 && !has_devices)
    reject(settings, "parallel.micro_batches",
           "parallel.pipeline, or several parallel.devices, have to be given as well");
  if (p.pipeline > 1 && !p.devices.empty())
    reject(settings, "parallel.devices", "with parallel.pipeline each rank has one device");
  if ((p.schedule == "interleaved") != (p.virtual_stages > 1))
    reject(settings, "parallel.virtual_stages", "the schedule interleaved has 2 or more, and the others 1");
  if (p.strategy != "ddp") reject(settings, "parallel.strategy", "the stages of a pipeline have no replicas");
  if (p.tensor > 1) reject(settings, "parallel.tensor", "it does not go with parallel.micro_batches");
  if (p.zero > 0) reject(settings, "parallel.zero", "the state of a pipeline is not divided further");
  if (p.hook != "allreduce") reject(settings, "parallel.hook", "gradients of a pipeline are averaged as they are");
  for (const auto& [key, on] :
       {std::pair("parallel.find_unused_parameters", p.find_unused_parameters),
        std::pair("parallel.static_graph", p.static_graph), std::pair("parallel.sync_batch_norm", p.sync_batch_norm),
        std::pair("parallel.ignored_parameters", !p.ignored_parameters.empty()),
        std::pair("parallel.delay_all_reduce_named_params", !p.delay_all_reduce_named_params.empty())})
    if (on) reject(settings, key, "it does not go with parallel.micro_batches");
  if (c.train.accumulate > 1)
    reject(settings, "train.accumulate", "parallel.micro_batches divides the samples of a step");
  if (c.train.quantization_aware)
    reject(settings, "train.quantization_aware", "it does not go with parallel.micro_batches");
  if (p.pipeline == 1 && !is_built_in(c.model))
    reject(settings, "parallel.devices", "a pipeline over devices is made of the built-in models alone");
}

// Tokens are numbers of entries, not measurements: only an embedding can read them. A plugin's model is what it is.
void check_model_of_tokens(const TrainConfig& c, const Settings& settings) {
  if (!is_built_in(c.model) || !is_built_in(c.data)) return;
  const bool tokens = c.data.name == "text" || c.data.name == "tokens";
  if (tokens != (c.model.name == "gpt"))
    reject(settings, "model.name",
           tokens ? "tokens (data.name = text or tokens) need a language model: gpt"
                  : "gpt is trained on tokens: data.name = text or tokens");
}

void check_random_data(const TrainConfig& c, const Settings& settings) {
  const auto shape = parse_extents(c.data.shape);
  const auto sample = product(shape);
  check_size(settings, "data.shape", "a sample", shape, max_tensor_elements);
  check_size(settings, "data.outputs", "a linear rule", {sample, c.data.outputs}, max_tensor_elements);
  check_size(settings, "train.batch_size", "a batch", {std::min(c.train.batch_size, c.data.samples), sample},
             max_batch_elements);
  check_size(settings, "eval.batch_size", "a batch", {std::min(c.eval.batch_size, c.data.test_samples), sample},
             max_batch_elements);
}

// Generated images are kept in memory.
void check_generated(const TrainConfig& c, const Settings& settings, const char* what, std::int64_t bytes) {
  if (c.data.samples + c.data.test_samples > max_dataset_bytes / bytes)
    reject(settings, c.data.samples >= c.data.test_samples ? "data.samples" : "data.test_samples",
           fmt::format("generated {} are kept in memory, {} bytes each: at most {} of them", what, bytes,
                       max_dataset_bytes / bytes));
}

// Layers of mlp between the sample and the outputs.
void check_hidden(const TrainConfig& c, const Settings& settings) {
  auto widths = parse_extents(c.model.hidden);
  if (c.data.name == "random") widths.insert(widths.begin(), product(parse_extents(c.data.shape)));
  for (std::size_t i = 1; i < widths.size(); ++i)
    check_size(settings, "model.hidden", "a layer", {widths[i - 1], widths[i]}, max_tensor_elements);
}

// What the model's layers can take at least; 0: any shape.
void check_image(const Settings& settings, std::string_view key, const std::string& model,
                 const std::vector<std::int64_t>& shape) {
  const std::int64_t least = nn::smallest_image(model);
  if (least == 0 || (shape.size() == 3 && shape[1] >= least && shape[2] >= least)) return;
  reject(settings, key,
         fmt::format("model {} takes channels, height and width, at least 1x{}x{}", model, least, least));
}

void check_gpt(const TrainConfig& c, const Settings& settings) {
  const TrainConfig::Model& m = c.model;
  const nn::GptOptions sizes = nn::with_preset({.preset = m.preset,
                                                .layers = m.layers,
                                                .heads = m.heads,
                                                .width = m.width,
                                                .context = m.context,
                                                .vocabulary = m.vocabulary});
  if (sizes.width % sizes.heads != 0)
    reject(settings, "model.heads", fmt::format("{} features do not divide by {} heads", sizes.width, sizes.heads));
  if (c.data.context > sizes.context)
    reject(settings, "data.context",
           fmt::format("gpt sees at most {} tokens (model.context, model.preset)", sizes.context));
  check_size(settings, "model.width", "a layer", {4, sizes.width, sizes.width}, max_tensor_elements);
  check_size(settings, "model.vocabulary", "an embedding", {sizes.vocabulary, sizes.width}, max_tensor_elements);
  check_size(settings, "model.context", "an embedding", {sizes.context, sizes.width}, max_tensor_elements);
}

void check_fine_tuning(const TrainConfig::Model& m, const Settings& settings) {
  if (!m.weights.empty()) return;
  for (const auto& [key, value] :
       {std::pair{"model.weights_prefix", m.weights_prefix}, std::pair{"model.weights_except", m.weights_except}})
    if (!value.empty()) reject(settings, key, "model.weights has to be given as well");
}

void check_distillation(const TrainConfig& c, const Settings& settings) {
  const auto& d = c.distill;
  check_extents(settings, "distill.hidden", d.hidden, true);
  if (c.train.task != "distillation") {
    if (!d.teacher.empty()) reject(settings, "distill.teacher", "train.task = distillation has to be given as well");
    return;
  }
  const auto names = nn::model_names();
  if (std::find(names.begin(), names.end(), d.teacher) == names.end())
    reject(settings, "distill.teacher", fmt::format("expected one of {}", fmt::join(names, ", ")));
  if (d.weights.empty()) reject(settings, "distill.weights", "expected the file with the teacher's parameters");
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

void bind(Settings& settings, TrainConfig& config, const plugin::Registry& registry) {
  bind_model(settings, config.model, registry);
  bind_fine_tuning(settings, config.model);
  bind_gpt(settings, config.model);
  bind_data(settings, config.data, registry);
  bind_train(settings, config.train, registry);
  bind_eval(settings, config.eval);
  bind_optim(settings, config.optim);
  bind_schedule(settings, config.optim);
  bind_rest(settings, config);
  bind_parallel(settings, config.parallel);
  bind_distill(settings, config.distill);
  bind_tokenize(settings, config.tokenize);
  bind_generate(settings, config.generate);
  bind_predict(settings, config.predict);
  bind_profile(settings, config.profile);
  bind_quantize(settings, config.quantize);
  registry.bind(settings);
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

std::vector<std::string> parse_names(const std::string& text) {
  std::vector<std::string> names;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" ,", at)) != std::string::npos) {
    const auto end = std::min(text.find_first_of(" ,", at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end;
  }
  return names;
}

DType compute_dtype(const TrainConfig::Train& train) {
  if (train.precision == "bf16") return DType::bfloat16;
  return train.precision == "fp16" ? DType::float16 : DType::float32;
}

void settle_batch_size(Settings& settings, const TrainConfig& config) {
  if (config.train.global_batch_size == 0) return;
  const auto batch = settings.find("train.batch_size")->source;
  const auto global = settings.find("train.global_batch_size")->source;
  if (batch.origin < global.origin) settings.assign("train.batch_size", "0", global);
  if (batch.origin > global.origin && config.train.batch_size > 0)
    settings.assign("train.global_batch_size", "0", batch);
}

BatchSizes batch_sizes(const TrainConfig::Train& t, int world_size) {
  const auto share = [](std::int64_t whole, std::int64_t parts) { return (whole + parts - 1) / parts; };
  if (t.global_batch_size > 0)
    return {.step = t.global_batch_size, .micro = share(share(t.global_batch_size, world_size), t.accumulate)};
  std::int64_t step = 0;
  if (__builtin_mul_overflow(t.batch_size * t.accumulate, std::int64_t{world_size}, &step))
    step = std::numeric_limits<std::int64_t>::max();
  return {.step = step, .micro = t.batch_size};
}

void validate(const TrainConfig& c, const Settings& settings) {
  check_batch_size(c.train, settings);
  check_extents(settings, "model.hidden", c.model.hidden, true);
  check_extents(settings, "data.shape", c.data.shape, false);
  if (c.data.name == "random" && c.data.labels && c.data.outputs < 2)
    reject(settings, "data.outputs", "labels need at least 2 classes");
  if (c.data.name == "random") check_random_data(c, settings);
  if (c.data.name == "digits") check_generated(c, settings, "digits", sizeof(data::Digit));
  if (c.data.name == "cifar10") check_generated(c, settings, "images", sizeof(data::Pattern));
  check_model_of_tokens(c, settings);
  if (c.parallel.strategy == "data_parallel" && (!is_built_in(c.model) || c.train.quantization_aware))
    reject(settings, "parallel.strategy", "replicas are made of the built-in models alone, not quantization aware");
  if (!c.data.tokenizer.empty() && c.data.name != "text")
    reject(settings, "data.tokenizer", "data.name = text has to be given as well");
  if (c.model.name == "mlp") check_hidden(c, settings);
  if (c.model.name == "gpt") check_gpt(c, settings);
  if (c.data.name == "random" && is_built_in(c.model))
    check_image(settings, "data.shape", c.model.name, parse_extents(c.data.shape));
  if (c.data.name == "image_folder" && is_built_in(c.model))
    check_image(settings, "data.image_size", c.model.name, {3, c.data.image_size, c.data.image_size});
  check_optimizer(c.optim, settings);
  check_schedule(c.optim, settings);
  check_distillation(c, settings);
  check_backend(settings, c.dist.backend);
  check_parallel(c.parallel, settings);
  check_tensor_parallel(c, settings);
  check_pipeline(c, settings);
  if (c.dist.staging_kb % 4 != 0) reject(settings, "dist.staging_kb", "expected a multiple of 4");
  if (c.checkpoint.dir.empty() && c.checkpoint.every_steps > 0)
    reject(settings, "checkpoint.every_steps", "checkpoint.dir has to be given as well");
  if (c.checkpoint.dir.empty() && (c.checkpoint.resume == "require" || c.checkpoint.resume == "best"))
    reject(settings, "checkpoint.resume", "checkpoint.dir has to be given as well");
  if (c.checkpoint.dir.empty() && c.checkpoint.keep_best)
    reject(settings, "checkpoint.keep_best", "checkpoint.dir has to be given as well");
  check_fine_tuning(c.model, settings);
}

std::map<std::string, std::string> settings_that_decide(const Settings& settings) {
  static constexpr std::string_view others[] = {
      "train.epochs",
      "model.plugin",
      "train.max_steps",
      "train.log_every",
      "train.check_replicas",
      "train.stop_on_nonfinite",
      "train.detect_anomaly",
      "train.recompute",
      "train.memory_report",
      "generate.",
      "tokenize.",
      "predict.",
      "profile.",
      "quantize.",
      "train.preempt_signal",
      "data.dir",
      "data.workers",
      "data.prefetch",
      "eval.",
      "dist.",
      "parallel.zero",
      "parallel.devices",
      "parallel.split",
      "parallel.reshard_after_forward",
      "parallel.shard_group",
      "parallel.tensor",
      "parallel.pipeline",
      "parallel.micro_batches",
      "parallel.schedule",
      "parallel.virtual_stages",
      "parallel.sequence",
      "checkpoint.",
      "metrics.",
  };
  std::map<std::string, std::string> deciding;
  for (const auto& setting : settings.all()) {
    const auto is_prefix = [&](std::string_view prefix) { return setting.key.starts_with(prefix); };
    if (std::none_of(std::begin(others), std::end(others), is_prefix)) deciding[setting.key] = setting.print();
  }
  return deciding;
}

}  // namespace ddprun::trainer
