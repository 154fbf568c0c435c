#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/optim/optimizer.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/checks.h"
#include "worker/trainer/config/device_settings.h"

namespace ddprun::trainer {
namespace {

// These names are not choices of the setting: a name that other programs accept deserves the reason.
void check_backend(const TrainConfig& c, const Settings& settings) {
  const auto& name = c.dist.backend;
  if (name == "nccl" && asks_for_cuda(c)) return;
  if (name == "nccl")
    reject(settings, "dist.backend",
           "NCCL exchanges the memory of GPUs alone: it needs train.device = cuda, or use auto");
  if (name != "auto" && name != "gloo" && name != "shm" && name != "hierarchical" && name != "mpi")
    reject(settings, "dist.backend", "expected one of auto, gloo, shm, hierarchical, mpi, nccl");
}

void check_hook_name(const Settings& settings, const std::string& name) {
  try {
    check_hook(name);
  } catch (const Error& e) {
    reject(settings, "parallel.hook", e.what());
  }
}

// Returns whether a hook keeps what it has not sent of a gradient.
bool keeps_errors(const std::string& hook) {
  return std::ranges::any_of(std::array{"int4", "topk", "powersgd", "batched_powersgd"},
                             [&](const char* name) { return has_hook(hook, name); });
}

// Refuses what an optimizer does to gradients before its momentum, or instead of it.
void check_one_bit(const TrainConfig& c, const Settings& settings) {
  if (c.optim.name != "adam" && c.optim.name != "adamw")
    reject(settings, "optim.name", "parallel.hook = onebit sends Adam's momentum: use adam or adamw");
  for (const auto& [key, on] :
       {std::pair("optim.clip_norm", c.optim.clip_norm > 0), std::pair("optim.clip_value", c.optim.clip_value > 0),
        std::pair("optim.skip_outliers", c.optim.skip_outliers > 0),
        std::pair("train.precision", c.train.precision == "fp16")})
    if (on) reject(settings, key, "it does not go with parallel.hook = onebit, which sends a momentum");
}

// A CUDA device may be named only once, since it has one thread.
void check_device_names(const TrainConfig::Parallel& p, const Settings& settings) {
  std::vector<Device> devices;
  try {
    devices = devices_of(p);
  } catch (const Error& e) {
    reject(settings, "parallel.devices", e.what());
  }
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    if (device->type != devices.front().type)
      reject(settings, "parallel.devices", "devices are all of the CPU or all of CUDA");
    if (device->type == DeviceType::cuda && std::find(devices.begin(), device, *device) != device)
      reject(settings, "parallel.devices", fmt::format("{} is named twice", to_string(*device)));
  }
}

// A model that is divided among CUDA devices has one rank, and gradients on all of these devices.
void check_divided_model(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  if (c.train.task == "distillation" && p.micro_batches > 0)
    reject(settings, "train.task", "the teacher and the last stage of a pipeline are on different CUDA devices");
  for (const auto& [key, on] : {std::pair("parallel.hook", p.hook != "allreduce"),
                                std::pair("parallel.ignored_parameters", !p.ignored_parameters.empty()),
                                std::pair("parallel.broadcast_buffers", !p.broadcast_buffers)})
    if (on) reject(settings, key, "it does not go with a model that is divided among CUDA devices");
}

void check_train_device(const TrainConfig& c, const Settings& settings) {
  const bool names_cuda = names_cuda_devices(c.parallel);
  if (names_cuda && c.train.device == "cpu")
    reject(settings, "train.device", fmt::format("parallel.devices = {} are CUDA devices", c.parallel.devices));
  if (c.train.device == "cuda" && !c.parallel.devices.empty() && !names_cuda)
    reject(settings, "parallel.devices", "train.device = cuda takes CUDA devices, such as cuda:0 cuda:1");
  if (!asks_for_cuda(c)) return;
  if (is_divided_among_cuda_devices(c.parallel)) check_divided_model(c, settings);
  if (const auto setting = setting_without_devices(c); !setting.empty())
    reject(settings, "train.device", fmt::format("{} does not run on devices so far: use cpu", setting));
}

void check_devices(const TrainConfig::Parallel& p, const Settings& settings) {
  if (p.strategy != "data_parallel") return;
  if (devices_of(p).empty()) reject(settings, "parallel.strategy", "parallel.devices has to be given as well");
  if (!p.split.empty() || p.zero > 0)
    reject(settings, p.zero > 0 ? "parallel.zero" : "parallel.split", "data_parallel has whole replicas");
  if (p.sync_batch_norm)
    reject(settings, "parallel.sync_batch_norm", "the batch norms of data_parallel's replicas are each device's own");
  if (devices_of(p).front() != Device{} && !names_cuda_devices(p))
    reject(settings, "parallel.devices", "data_parallel begins with cpu:0, where batches and the model are");
}

void check_division(const TrainConfig::Parallel& p, const std::string& optimizer, const Settings& settings) {
  if (p.zero > 1 && !p.devices.empty())
    reject(settings, "parallel.devices", "parallel.zero = 2 and 3 have one device a rank");
  if (p.zero > 1 && !p.delay_all_reduce_named_params.empty())
    reject(settings, "parallel.delay_all_reduce_named_params",
           "parallel.zero = 2 and 3 reduce in an order of their own");
  if (p.zero == 0) return;
  if (p.zero > 1 && p.hook != "allreduce")
    reject(settings, "parallel.hook", "parallel.zero = 2 and 3 have no whole buckets of gradients for a hook");
  if (has_hook(p.hook, "onebit"))
    reject(settings, "parallel.hook", "onebit keeps averages of whole gradients, which parallel.zero divides");
  if (p.find_unused_parameters || p.static_graph || !p.ignored_parameters.empty())
    reject(settings, "parallel.zero",
           "updates are not divided with parallel.find_unused_parameters, static_graph or ignored_parameters");
  if (!optim::is_elementwise(optimizer))
    reject(settings, "parallel.zero",
           fmt::format("updates are divided by elements, and optim.name = {} needs whole tensors", optimizer));
}

// Refuses settings for gradients that are averaged in each step, and those that would make ranks differ.
void check_local_sgd(const TrainConfig& c, const Settings& settings) {
  const auto no_average = [&](const char* key) {
    reject(settings, key, "parallel.strategy = local_sgd does not average the gradients of every step");
  };
  if (c.parallel.hook != "allreduce") no_average("parallel.hook");
  if (c.parallel.zero > 0) no_average("parallel.zero");
  if (c.parallel.sync_batch_norm) no_average("parallel.sync_batch_norm");
  if (!c.parallel.ignored_parameters.empty())
    reject(settings, "parallel.ignored_parameters", "parallel.strategy = local_sgd averages all parameters");
  if (c.train.precision == "fp16")
    reject(settings, "train.precision", "with parallel.strategy = local_sgd ranks would skip different steps");
  if (c.optim.skip_outliers > 0)
    reject(settings, "optim.skip_outliers", "with parallel.strategy = local_sgd ranks would skip different steps");
  if (c.train.ema > 0) reject(settings, "train.ema", "parallel.strategy = local_sgd has no averages over steps");
  const auto& p = c.parallel;
  if (p.fragments > p.local_sgd_period)
    reject(settings, "parallel.fragments",
           fmt::format("parallel.local_sgd_period = {} has no step for each", p.local_sgd_period));
  if (p.fragment_sync_delay >= p.local_sgd_period)
    reject(settings, "parallel.fragment_sync_delay",
           fmt::format("it has to be less than parallel.local_sgd_period = {}", p.local_sgd_period));
}

// Refuses settings with which several ranks make a step, or a step has more than one gradient.
void check_parameter_server(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  for (const auto& [key, on] :
       {std::pair("parallel.hook", p.hook != "allreduce"), std::pair("parallel.zero", p.zero > 0),
        std::pair("parallel.tensor", p.tensor > 1), std::pair("parallel.micro_batches", p.micro_batches > 0),
        std::pair("parallel.sync_batch_norm", p.sync_batch_norm), std::pair("parallel.balance", p.balance),
        std::pair("train.precision", c.train.precision == "fp16"), std::pair("train.ema", c.train.ema > 0),
        std::pair("train.quantization_aware", c.train.quantization_aware),
        std::pair("optim.skip_outliers", c.optim.skip_outliers > 0)})
    if (on) reject(settings, key, "it does not go with parallel.strategy = parameter_server");
  if (!optim::is_elementwise(c.optim.name))
    reject(settings, "optim.name",
           "parallel.strategy = parameter_server divides updates by elements, and this optimizer needs whole tensors");
}

void check_tensor_parallel(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  const auto refuse = [&](std::string_view key) { reject(settings, key, "it does not go with parallel.tensor"); };
  if (p.strategy != "ddp") refuse("parallel.strategy");
  if (!p.devices.empty()) refuse("parallel.devices");
  if (p.sync_batch_norm) refuse("parallel.sync_batch_norm");
  if (p.balance) refuse("parallel.balance");
  if (p.hook != "allreduce" && p.hook != "fp16" && p.hook != "bf16")
    reject(settings, "parallel.hook",
           "with parallel.tensor it is allreduce, fp16 or bf16, which keep nothing of a part");
  if (!p.ignored_parameters.empty()) refuse("parallel.ignored_parameters");
  if (c.train.quantization_aware) refuse("train.quantization_aware");
  if (!is_built_in(c.model)) refuse("model.name");
  if (!optim::is_elementwise(c.optim.name)) refuse("optim.name");
}

struct Refusal {
  const char* key;
  bool is_set;
  const char* reason;
};

// Refuses keys that are set with another one, each for its reason.
void refuse_all(const Settings& settings, const char* other, std::initializer_list<Refusal> refusals) {
  for (const Refusal& each : refusals)
    if (each.is_set) reject(settings, each.key, fmt::format("with {} {}", other, each.reason));
}

// Refuses what does not go with ranks that have some positions of each sample.
void check_context_parallel(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  if (c.model.name != "gpt")
    reject(settings, "parallel.context", "the model needs causal attention: model.name = gpt has to be given as well");
  if (c.train.task != "auto" && c.train.task != "language_modelling")
    reject(settings, "train.task", "with parallel.context a rank has scores of its positions: use language_modelling");
  if (c.data.context % (2 * p.context) != 0)
    reject(settings, "data.context", fmt::format("it has to be a multiple of 2 parallel.context = {}", 2 * p.context));
  refuse_all(settings, "parallel.context",
             {{"parallel.strategy", p.strategy != "ddp", "a gradient is of some positions: each step adds them all up"},
              {"parallel.devices", !p.devices.empty(), "attention goes round ranks, each with one device"},
              {"parallel.balance", p.balance, "ranks of the same samples have equal parts of them"},
              {"parallel.ignored_parameters", !p.ignored_parameters.empty(),
               "a sample is computed by several ranks, which need the same parameters"},
              {"train.quantization_aware", c.train.quantization_aware,
               "the ranges of activations would be those of a rank's positions"}});
}

// Refuses what does not go with ranks that compute the tokens of others.
void check_expert_parallel(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  if (c.model.experts % p.expert != 0)
    reject(settings, "model.experts", fmt::format("it has to be a multiple of parallel.expert = {}", p.expert));
  if (!optim::is_elementwise(c.optim.name))
    reject(settings, "optim.name",
           fmt::format("experts are divided by parallel.expert, and {} needs whole tensors", c.optim.name));
  refuse_all(settings, "parallel.expert",
             {{"parallel.strategy", p.strategy != "ddp", "an expert learns from the tokens of all ranks in each step"},
              {"parallel.static_graph", p.static_graph, "every pass reaches every parameter"},
              {"parallel.find_unused_parameters", p.find_unused_parameters, "every pass reaches every parameter"},
              {"parallel.ignored_parameters", !p.ignored_parameters.empty(),
               "a token is computed by several ranks, which need the same parameters"},
              {"parallel.balance", p.balance && p.pipeline > 1,
               "the times of a stage contain those for which its experts wait for other ranks"},
              {"parallel.delay_all_reduce_named_params", !p.delay_all_reduce_named_params.empty(),
               "gradients are reduced over two groups of ranks, each in its own order"}});
  if (p.zero > 1)
    reject(settings, "parallel.zero",
           "with parallel.expert a unit has parameters that different ranks share: use parallel.zero = 1");
  if (p.hook != "allreduce" && p.zero > 0)
    reject(settings, "parallel.hook",
           "with parallel.expert and parallel.zero gradients are reduced to parts as they are");
  if (p.hook != "allreduce" && p.hook != "fp16" && p.hook != "bf16")
    reject(settings, "parallel.hook",
           "with parallel.expert it is allreduce, fp16 or bf16, which keep nothing of a part");
}

// Refuses what does not go with experts, divided or not.
void check_no_experts(const TrainConfig::Parallel& p, const Settings& settings) {
  if (!p.devices.empty()) reject(settings, "parallel.devices", "it does not go with model.experts");
}

// Refuses what divides a step or a model in another way, averages gradients in another order, or lets the result depend
// on which rank has a sample.
void check_shards(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  for (const auto& [key, on] :
       {std::pair("parallel.strategy", p.strategy != "ddp"), std::pair("parallel.devices", !p.devices.empty()),
        std::pair("parallel.hook", p.hook != "allreduce"), std::pair("parallel.zero", p.zero > 0),
        std::pair("parallel.tensor", p.tensor > 1), std::pair("parallel.pipeline", p.pipeline > 1),
        std::pair("parallel.context", p.context > 1), std::pair("parallel.expert", p.expert > 1),
        std::pair("parallel.balance", p.balance), std::pair("parallel.static_graph", p.static_graph),
        std::pair("parallel.find_unused_parameters", p.find_unused_parameters),
        std::pair("parallel.ignored_parameters", !p.ignored_parameters.empty()),
        std::pair("train.quantization_aware", c.train.quantization_aware)})
    if (on) reject(settings, key, "it does not go with train.shards");
  if (c.train.accumulate > 1) reject(settings, "train.accumulate", "train.shards divides the samples of a step");
  if (c.optim.schedule == "plateau")
    reject(settings, "optim.schedule",
           "with train.shards the learning rate cannot depend on the test loss, whose last bits depend on the ranks");
}

// Refuses what does not go with a pipeline.
void check_pipeline(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  if (p.pipeline > 1 && !p.devices.empty())
    reject(settings, "parallel.devices", "with parallel.pipeline each rank has one device");
  if ((p.schedule == "interleaved") != (p.virtual_stages > 1))
    reject(settings, "parallel.virtual_stages", "the schedule interleaved has 2 or more, and the others 1");
  if (p.strategy != "ddp") reject(settings, "parallel.strategy", "the stages of a pipeline have no replicas");
  if (p.zero > 0 && p.pipeline == 1)
    reject(settings, "parallel.zero", "the state of a pipeline over devices is not divided");
  if (p.zero == 3 && p.schedule == "zero_bubble" && p.reshard_after_forward && !is_built_in(c.model))
    reject(settings, "parallel.schedule",
           "zero_bubble computes gradients of weights after parallel.zero = 3 has freed the weights, which a layer of "
           "model.plugin may need: use parallel.reshard_after_forward = false");
  if (p.pipeline > 1 && has_hook(p.hook, "onebit"))
    reject(settings, "parallel.hook",
           "with parallel.pipeline the second average of a tied parameter would be of one stage's gradients alone");
  for (const auto& [key, on] : {std::pair("parallel.find_unused_parameters", p.find_unused_parameters),
                                std::pair("parallel.static_graph", p.static_graph)})
    if (on && p.pipeline == 1)
      reject(settings, key, "parallel.micro_batches adds gradients of other devices up after the pass that it watches");
  if (p.sync_batch_norm)
    reject(
        settings, "parallel.sync_batch_norm",
        "with parallel.micro_batches ranks may have different numbers of micro-batches, and no statistics in common");
  if (p.balance && keeps_errors(p.hook))
    reject(settings, "parallel.balance", "a layer that moves would lose what parallel.hook keeps of its gradients");
  if (p.balance && (p.pipeline == 1 || p.virtual_stages > 1))
    reject(settings, "parallel.balance", "layers move between ranks that have one stage each");
  if (c.train.accumulate > 1)
    reject(settings, "train.accumulate", "parallel.micro_batches divides the samples of a step");
  if (p.pipeline == 1 && !is_built_in(c.model))
    reject(settings, "parallel.devices", "a pipeline over devices is made of the built-in models alone");
}

}  // namespace

void check_parallel(const TrainConfig& c, const Settings& settings) {
  const TrainConfig::Parallel& p = c.parallel;
  check_device_names(p, settings);
  check_backend(c, settings);
  if (c.dist.staging_kb % 4 != 0) reject(settings, "dist.staging_kb", "expected a multiple of 4");
  check_hook_name(settings, p.hook);
  if (has_hook(p.hook, "onebit")) check_one_bit(c, settings);
  check_devices(p, settings);
  check_train_device(c, settings);
  check_division(p, c.optim.name, settings);
  if (p.strategy == "local_sgd") check_local_sgd(c, settings);
  if (p.strategy == "parameter_server") check_parameter_server(c, settings);
  if (p.micro_batches > 0) check_pipeline(c, settings);
  if (c.train.shards > 0) check_shards(c, settings);
  if (p.micro_batches == 0 && p.pipeline > 1)
    reject(settings, "parallel.pipeline", "parallel.micro_batches has to be given as well");
  if (const int parts = p.tensor * p.context; p.sequence && c.data.context % parts != 0)
    reject(settings, "data.context",
           p.context == 1 ? fmt::format("it has to be a multiple of parallel.tensor = {}", p.tensor)
                          : fmt::format("it has to be a multiple of parallel.tensor parallel.context = {}", parts));
  if (p.context > 1) check_context_parallel(c, settings);
  if (c.model.experts > 0) check_no_experts(p, settings);
  if (p.expert > 1) check_expert_parallel(c, settings);
  if (p.tensor > 1) check_tensor_parallel(c, settings);
  if (p.balance && (p.strategy == "local_sgd" || p.sync_batch_norm))
    reject(settings, "parallel.balance", "not with parallel.strategy = local_sgd or parallel.sync_batch_norm");
}

}  // namespace ddprun::trainer
