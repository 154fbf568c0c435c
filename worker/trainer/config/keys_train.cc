#include "worker/tasks/tasks.h"
#include "worker/trainer/config/keys.h"
#include "worker/trainer/config/preempt_signal.h"

namespace ddprun::trainer {

void bind_train(Settings& s, TrainConfig::Train& t, const plugin::Registry& registry) {
  s.add("train.task", t.task,
        {.help =
             "what is learnt; auto: classification from class labels, language_modelling from tokens, regression from "
             "numbers",
         .choices = joined(tasks::task_names(), registry.tasks.names())});
  s.add("train.epochs", t.epochs, {.help = "passes over the data", .min = 1, .max = max_count, .scope = Scope::group});
  s.add("train.batch_size", t.batch_size,
        {.help = "samples per rank and micro-batch, or per shard with train.shards; 0: from train.global_batch_size",
         .min = 0,
         .max = max_count});
  s.add("train.global_batch_size", t.global_batch_size,
        {.help = "samples of an optimizer step of all ranks together, with any number of ranks; 0: world size x "
                 "train.batch_size x train.accumulate, or train.shards x train.batch_size",
         .unit = "samples",
         .min = 0,
         .max = max_count});
  s.add("train.max_steps", t.max_steps,
        {.help = "number of optimizer steps after which training stops; 0: at the end of the last epoch",
         .min = 0,
         .scope = Scope::group});
  s.add("train.seed", t.seed, {.help = "seed of the initial parameters, the data order and dropout", .min = 0});
  s.add("train.accumulate", t.accumulate,
        {.help = "micro-batches per optimizer step; gradients are reduced once per step", .min = 1, .max = max_count});
  s.add("train.shards", t.shards,
        {.help = "number of shards into which each step is divided, whatever the number of ranks: the parameters have "
                 "the same bits with any number of ranks and threads, and after any recovery. A power of two, and as "
                 "many ranks, or half, a quarter, ... of that, send least; 0: each rank has one share",
         .min = 0,
         .max = max_shards});
  s.add("train.device", t.device,
        {.help = "where a rank trains: cuda is the GPU of its LOCAL_RANK among those that CUDA_VISIBLE_DEVICES leaves; "
                 "auto: the GPU where there is one, the CUDA module, and no setting that GPUs lack, else the CPU. Not "
                 "given: cuda where parallel.devices names CUDA devices",
         .choices = {"auto", "cpu", "cuda"},
         .scope = Scope::group});
  s.add("train.precision", t.precision,
        {.help = "type in which matrix products and convolutions compute, as torch.autocast; parameters, gradients and "
                 "the optimizer stay fp32",
         .choices = {"fp32", "bf16", "fp16"}});
  s.add("train.tf32", t.tf32,
        {.help = "let a GPU multiply float32 in TF32, which keeps 10 bits of the mantissa, in matrix products and "
                 "convolutions; needs compute capability 8.0. PyTorch's default is false for products, and true for "
                 "convolutions"});
  s.add(
      "train.winograd", t.winograd,
      {.help = "use Winograd's algorithm for convolutions of 3x3 where the processor has a fast one; faster, and less "
               "exact in float32"});
  s.add("train.quantization_aware", t.quantization_aware,
        {.help = "train with inputs and weights rounded as ddprun-worker quantize rounds them, in the layers that it "
                 "replaces; it then takes the ranges of inputs that training has learnt"});
  s.add("train.ema", t.ema,
        {.help = "decay of an exponential moving average of the parameters, such as 0.999, with which evaluations, "
                 "predict, generate and quantize work; 0: none",
         .min = 0,
         .max = 0.999999});
  s.add("train.recompute", t.recompute,
        {.help =
             "what keeps nothing but its input for the backward pass, which computes it again: none; blocks: those of "
             "gpt and resnet18; all: every layer of a container and every module that has modules. The same bits for "
             "less memory and more time",
         .choices = {"none", "blocks", "all"},
         .scope = Scope::group});
  s.add("train.memory_report", t.memory_report,
        {.help = "at the end, print a table of rank 0's memory by part of the model: parameters, gradients, optimizer, "
                 "and what operations keep for the backward pass",
         .scope = Scope::process});
  s.add("train.loss_scale", t.scaler.scale,
        {.help = "factor of the loss at first, with train.precision = fp16, as torch.amp.GradScaler; a step whose "
                 "gradients are not finite is skipped",
         .min = 1e-6,
         .max = 1e30});
  s.add("train.loss_scale_growth", t.scaler.growth,
        {.help = "factor of the loss scale after train.loss_scale_growth_interval steps in a row with finite gradients",
         .min = 1,
         .max = 1024});
  s.add("train.loss_scale_backoff", t.scaler.backoff,
        {.help = "factor of the loss scale after a step that is skipped", .min = 0.001, .max = 0.999});
  s.add("train.loss_scale_growth_interval", t.scaler.growth_interval,
        {.help = "steps after which the loss scale grows", .unit = "steps", .min = 1});
  s.add(
      "train.log_every", t.log_every,
      {.help = "number of steps between two progress lines on standard output; 0: none. A GPU is waited for then, and "
               "not in the steps between",
       .unit = "steps",
       .min = 0,
       .scope = Scope::process});
  s.add("train.check_replicas", t.check_replicas,
        {.help = "number of steps between two comparisons of what the ranks have copies of, which find silent data "
                 "corruption: each time of the next tenth of the parameters, and at the end of all; 1 or true: of all "
                 "after every step; 0 or false: none",
         .unit = "steps",
         .min = 0,
         .words = {{"true", "1"}, {"yes", "1"}, {"on", "1"}, {"false", "0"}, {"no", "0"}, {"off", "0"}},
         .scope = Scope::group});
  s.add("train.detect_anomaly", t.detect_anomaly,
        {.help = "check every result and every gradient, and stop with an error that names the operation and the "
                 "module that produced the first NaN or infinity; slow",
         .scope = Scope::process});
  s.add("train.check_placements", t.check_placements,
        {.help = "with parallel.tensor: check that the operands of each operation are all the same at the ranks that "
                 "divide layers, or all each rank's own, and name those that are not: builds of type Debug always do",
         .scope = Scope::process});
  s.add(
      "train.stop_on_nonfinite", t.stop_on_nonfinite,
      {.help = "stop with an error, before a checkpoint is written, when a training or test loss is infinite or not a "
               "number; otherwise warn once and continue",
       .scope = Scope::group});
  s.add(
      "train.preempt_signal", t.preempt_signal,
      {.help = "signal that requests preemption, at any rank: all ranks stop after the same step, with a checkpoint of "
               "it and exit code 75; without a checkpoint.dir the signal keeps its default action",
       .choices = preempt_signal_names(),
       .scope = Scope::process});
}

void bind_eval(Settings& s, TrainConfig::Eval& e) {
  s.add("eval.batch_size", e.batch_size,
        {.help = "samples per rank and batch", .min = 1, .max = max_count, .scope = Scope::group});
  s.add("eval.every_epochs", e.every_epochs,
        {.help = "number of epochs between two evaluations; 0: only at the end", .min = 0, .scope = Scope::group});
  s.add("eval.every_steps", e.every_steps,
        {.help = "number of optimizer steps between two evaluations, beside those after epochs; 0: none",
         .min = 0,
         .scope = Scope::group});
}

}  // namespace ddprun::trainer
