#include "worker/trainer/config/keys.h"
#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {

void bind_dist(Settings& s, TrainConfig::Dist& d) {
  s.add(
      "dist.backend", d.backend,
      {.help = "how ranks exchange data; auto: shared memory on one host, hierarchical on several, else gloo, and NCCL "
               "for memory of GPUs; one of `auto`, `gloo`, `shm`, `hierarchical`, `mpi` (processes that mpirun has "
               "started), `nccl` (with train.device = cuda)",
       .scope = Scope::group});
  s.add("dist.timeout", d.timeout,
        {.help = "timeout of a collective operation that a peer does not join although it is alive",
         .unit = "s",
         .min = 0.001,
         .max = 1e7,
         .scope = Scope::group});
  s.add("dist.freeze_bound", d.freeze_bound,
        {.help = "time without a heartbeat after which a rank counts as lost; time in which the rank that observes it "
                 "did not run is not counted; 0: never",
         .unit = "s",
         .min = 0,
         .max = 1e7,
         .scope = Scope::group});
  s.add("dist.staging_kb", d.staging_kb,
        {.help = "size of each of the two staging buffers of a rank in shared memory; a multiple of 4",
         .unit = "KiB",
         .min = 4,
         .max = 1'048'576,
         .scope = Scope::group});
  s.add("dist.bucket_mb", d.bucket_mb,
        {.help = "maximum size of a bucket of gradients that are reduced together",
         .unit = "MiB",
         .min = 0.001,
         .max = 1e6,
         .scope = Scope::group});
}

// DiLoCo and its streaming form, with torchft's names.
void bind_outer_optimizer(Settings& s, TrainConfig::Parallel& p) {
  s.add("parallel.outer_lr", p.local_sgd.outer.lr,
        {.help = "with parallel.strategy = local_sgd: learning rate of the outer optimizer (DiLoCo), SGD with Nesterov "
                 "momentum, whose gradient is what the ranks have learnt between two averages; 1 without momentum: "
                 "the average itself",
         .min = 0,
         .max = 1000});
  s.add("parallel.outer_momentum", p.local_sgd.outer.momentum,
        {.help = "with parallel.strategy = local_sgd: momentum of the outer optimizer", .min = 0, .max = 1});
  s.add(
      "parallel.fragments", p.local_sgd.fragments,
      {.help = "with parallel.strategy = local_sgd: parts of the model, which are averaged one after the other within "
               "a period (streaming DiLoCo)",
       .min = 1,
       .max = 1'000'000});
  s.add(
      "parallel.fragment_sync_delay", p.local_sgd.fragment_sync_delay,
      {.help = "with parallel.strategy = local_sgd: steps from the beginning of an average to its use; it is computed "
               "beside them",
       .unit = "steps",
       .min = 0,
       .max = 1'000'000'000});
  s.add(
      "parallel.fragment_update_alpha", p.local_sgd.outer.fragment_update_alpha,
      {.help = "with parallel.fragment_sync_delay: share of a rank's own parameters that stays when a delayed average "
               "comes",
       .min = 0,
       .max = 1});
}

// Names are PyTorch's where it has the same: those of DistributedDataParallel's arguments and PowerSGDState's.
void bind_parallel(Settings& s, TrainConfig::Parallel& p) {
  s.add("parallel.strategy", p.strategy,
        {.help = "ddp: each rank trains a replica on its part of the batch; data_parallel: with a replica "
                 "and a thread for each of parallel.devices; local_sgd: ranks step by their own gradients and average "
                 "their parameters now and then; parameter_server: each worker's gradient updates the parameters that "
                 "servers have, without waiting for other workers",
         .choices = {"ddp", "data_parallel", "local_sgd", "parameter_server"}});
  s.add("parallel.local_sgd_period", p.local_sgd.period,
        {.help = "with parallel.strategy = local_sgd: steps from one average of the parameters to the next",
         .unit = "steps",
         .min = 1,
         .max = 1'000'000'000});
  s.add("parallel.start_localSGD_iter", p.local_sgd.start_localSGD_iter,
        {.help = "with parallel.strategy = local_sgd: steps at first whose gradients are averaged as with ddp",
         .unit = "steps",
         .min = 0,
         .max = 1'000'000'000});
  bind_outer_optimizer(s, p);
  s.add("parallel.servers", p.server.servers,
        {.help = "with parallel.strategy = parameter_server: ranks, the first ones, that each have a range of the "
                 "parameters and of the optimizer's state; the others are workers",
         .unit = "ranks",
         .min = 1,
         .max = 1024,
         .scope = Scope::group});
  s.add("parallel.staleness", p.server.staleness,
        {.help = "with parallel.strategy = parameter_server: updates that may come between a worker's reading of the "
                 "parameters and the update by its gradient. 0: workers compute one after the other",
         .unit = "steps",
         .min = 0,
         .max = 1024});
  s.add("parallel.round", p.round,
        {.help = "with parallel.strategy = parameter_server: steps from one point at which all ranks have the same "
                 "parameters to the next. The end of an epoch and a step with a checkpoint are such points too",
         .unit = "steps",
         .min = 1,
         .max = 1'000'000'000,
         .scope = Scope::group});
  s.add("parallel.balance", p.balance,
        {.help = "ranks that are measured to compute more slowly get fewer samples of each step; with "
                 "parallel.pipeline, layers move from slow stages to neighbouring ones"});
  s.add("parallel.devices", p.devices,
        {.help = "devices of a rank, such as cpu:0 cpu:1, or of a job of one process cuda:0 cuda:1. With ddp the "
                 "modules of the model are divided among them. Empty: one, as train.device says",
         .scope = Scope::group});
  s.add("parallel.split", p.split,
        {.help = "the first module on each device but the first, such as layer3, or of each stage of a pipeline, such "
                 "as h.2. Empty: by measured time",
         .scope = Scope::group});
  s.add("parallel.zero", p.zero,
        {.help = "what is divided among the ranks (ZeRO); 0: nothing; 1: the optimizer's state and work; 2: gradients "
                 "as well; 3: parameters as well",
         .min = 0,
         .max = 3,
         .scope = Scope::group});
  s.add("parallel.reshard_after_forward", p.sharded.reshard_after_forward,
        {.help = "with parallel.zero = 3: free parameters after their forward pass and gather them again for their "
                 "backward pass",
         .scope = Scope::group});
  s.add("parallel.shard_group", p.sharded.shard_group,
        {.help = "with parallel.zero = 2 or 3: divide among so many neighbouring ranks, and average over such groups; "
                 "0: among all ranks",
         .unit = "ranks",
         .min = 0,
         .scope = Scope::group});
  for (const ModelAxis& axis : model_axes())
    s.add(std::string(axis.key), p.ranks[axis.name()],
          {.help = std::string(axis.help), .unit = "ranks", .min = 1, .max = 1024, .scope = Scope::group});
  s.add("parallel.micro_batches", p.micro_batches,
        {.help = "parts of a step's samples of a data rank, which pass through the stages of parallel.pipeline, or of "
                 "several parallel.devices, one after the other. 0: no pipeline",
         .min = 0,
         .max = 1'000'000,
         .scope = Scope::group});
  s.add("parallel.schedule", p.schedule,
        {.help = "the order in which each stage computes: gpipe: all forward passes, then all backward passes; 1f1b: "
                 "one forward and one backward pass in turn; interleaved: with parallel.virtual_stages; zero_bubble: "
                 "gradients of weights apart (ZB-H1)",
         .choices = {"gpipe", "1f1b", "interleaved", "zero_bubble"},
         .scope = Scope::group});
  s.add("parallel.virtual_stages", p.virtual_stages,
        {.help = "stages of each rank or device, for the interleaved schedule",
         .min = 1,
         .max = 1024,
         .scope = Scope::group});
  s.add(
      "parallel.sequence", p.sequence,
      {.help = "with parallel.tensor, model.name = gpt: of what is not divided, each of those ranks has a range of the "
               "positions (sequence parallelism); data.context is a multiple of parallel.tensor",
       .scope = Scope::group});
  s.add("parallel.find_unused_parameters", p.ddp.find_unused_parameters,
        {.help = "a backward pass need not reach every parameter: which ones it reached is exchanged in each pass"});
  s.add(
      "parallel.static_graph", p.ddp.static_graph,
      {.help = "every backward pass reaches the parameters that the first one reached: which ones is exchanged once"});
  s.add("parallel.broadcast_buffers", p.ddp.broadcast_buffers,
        {.help = "copy rank 0's buffers, such as running statistics, to all ranks at the beginning of each step"});
  s.add("parallel.ignored_parameters", p.ignored_parameters,
        {.help = "parameters and buffers, such as fc.weight fc.bias, that stay each rank's own"});
  s.add("parallel.delay_all_reduce_named_params", p.delay_all_reduce_named_params,
        {.help = "parameters whose gradients are averaged after those of all others"});
  s.add("parallel.param_to_hook_all_reduce", p.param_to_hook_all_reduce,
        {.help = "the parameter with whose gradient that starts at the earliest. Empty: no matter when"});
  s.add("parallel.sync_batch_norm", p.sync_batch_norm,
        {.help = "batch norm takes its statistics over the samples of all ranks, as SyncBatchNorm"});
  s.add("parallel.hook", p.hook,
        {.help =
             "how gradients are averaged; one of `allreduce`, `fp16`, `bf16`, `int8`, `int8_channel`, `int4`, `topk`, "
             "`onebit`, `powersgd`, `batched_powersgd`, or a+b: a compresses, b averages what a sends"});
  s.add("parallel.topk_fraction", p.hook_options.topk_fraction,
        {.help = "share of a bucket's elements that topk sends, at least one", .min = 1e-6, .max = 1});
  s.add("parallel.freeze_step", p.hook_options.one_bit.freeze_step,
        {.help = "steps before onebit compresses, after which Adam's second average stays",
         .unit = "steps",
         .min = 1,
         .max = max_count});
  s.add("parallel.matrix_approximation_rank", p.hook_options.power_sgd.matrix_approximation_rank,
        {.help = "rank of the matrices that powersgd sends", .min = 1, .max = 1024});
  s.add("parallel.start_powerSGD_iter", p.hook_options.power_sgd.start_powerSGD_iter,
        {.help = "steps before powersgd compresses", .unit = "steps", .min = 0, .max = max_count});
  s.add("parallel.use_error_feedback", p.hook_options.power_sgd.use_error_feedback,
        {.help = "powersgd adds what it left out of a gradient to the next one"});
  s.add("parallel.warm_start", p.hook_options.power_sgd.warm_start,
        {.help = "powersgd begins with the factors of the step before"});
  s.add("parallel.min_compression_rate", p.hook_options.power_sgd.min_compression_rate,
        {.help = "powersgd sends a matrix as it is unless its factors are more than so many times smaller",
         .min = 0,
         .max = max_count});
}

}  // namespace ddprun::trainer
