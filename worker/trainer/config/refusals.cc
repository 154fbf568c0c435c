#include "worker/trainer/config/refusals.h"

#include <algorithm>

#include <fmt/format.h>

#include "worker/optim/optimizer.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

using Config = TrainConfig;

bool averages_by_hook(const Config& c) {
  return c.parallel.hook != "allreduce";
}
bool is_one_bit(const Config& c) {
  return ddprun::has_hook(c.parallel.hook, "onebit");
}
bool is_asynchronous(const Config& c) {
  return c.parallel.strategy == "local_sgd" || c.parallel.strategy == "parameter_server";
}
bool is_device_pipeline(const Config& c) {
  return c.parallel.micro_batches > 0 && c.parallel.ranks.on("pipeline") == 1;
}

SettingValues several_ranks(const ModelAxis& axis) {
  return {axis.key, "", [&axis](const Config& c) { return c.parallel.ranks.on(axis.name()) > 1; }};
}

bool is_any(const ModelAxis&) {
  return true;
}
bool has_same_samples(const ModelAxis& axis) {
  return !axis.has_own_samples;
}
bool has_own_gradients(const ModelAxis& axis) {
  return axis.has_own_gradients;
}
// A pipeline has parallel.micro_batches, which the same row names.
bool has_no_micro_batches(const ModelAxis& axis) {
  return !axis.is_outermost;
}

// Returns the settings, then the axes for which this holds.
std::vector<SettingValues> and_axes(std::vector<SettingValues> all, bool (*holds)(const ModelAxis&) = is_any) {
  for (const ModelAxis& axis : model_axes())
    if (holds(axis)) all.push_back(several_ranks(axis));
  return all;
}

const SettingValues zero{"parallel.zero", "", [](const Config& c) { return c.parallel.zero > 0; }};
const SettingValues divided_gradients{"parallel.zero", "= 2 and 3",
                                      [](const Config& c) { return c.parallel.zero > 1; }};
const SettingValues micro_batches{"parallel.micro_batches", "",
                                  [](const Config& c) { return c.parallel.micro_batches > 0; }};
const SettingValues hook{"parallel.hook", "", averages_by_hook};
const SettingValues devices{"parallel.devices", "", [](const Config& c) { return !c.parallel.devices.empty(); }};
const SettingValues strategy{"parallel.strategy", "other than ddp",
                             [](const Config& c) { return c.parallel.strategy != "ddp"; }};
const SettingValues server{"parallel.strategy", "= parameter_server",
                           [](const Config& c) { return c.parallel.strategy == "parameter_server"; }};
const SettingValues data_parallel{"parallel.strategy", "= data_parallel",
                                  [](const Config& c) { return c.parallel.strategy == "data_parallel"; }};
const SettingValues experts{"model.experts", "", [](const Config& c) { return c.model.experts.experts > 0; }};
const SettingValues balance{"parallel.balance", "", [](const Config& c) { return c.parallel.balance; }};
const SettingValues sync_batch_norm{"parallel.sync_batch_norm", "",
                                    [](const Config& c) { return c.parallel.sync_batch_norm; }};
const SettingValues find_unused{"parallel.find_unused_parameters", "",
                                [](const Config& c) { return c.parallel.ddp.find_unused_parameters; }};
const SettingValues static_graph{"parallel.static_graph", "",
                                 [](const Config& c) { return c.parallel.ddp.static_graph; }};
const SettingValues ignored{"parallel.ignored_parameters", "",
                            [](const Config& c) { return !c.parallel.ignored_parameters.empty(); }};
const SettingValues shards{"train.shards", "", [](const Config& c) { return c.train.shards > 0; }};
const SettingValues fp16{"train.precision", "= fp16", [](const Config& c) { return c.train.precision == "fp16"; }};
const SettingValues ema{"train.ema", "", [](const Config& c) { return c.train.ema > 0; }};
const SettingValues quantization{"train.quantization_aware", "",
                                 [](const Config& c) { return c.train.quantization_aware; }};
const SettingValues outliers{"optim.skip_outliers", "", [](const Config& c) { return c.optim.skip_outliers > 0; }};
const SettingValues whole_tensors{"optim.name", "= lamb, lars and muon",
                                  [](const Config& c) { return !optim::is_elementwise(c.optim.name); }};

std::vector<Refusal> gradient_rows() {
  const SettingValues one_bit{"parallel.hook", "= onebit", is_one_bit};
  return {
      {one_bit,
       {{"optim.name", "other than adam and adamw",
         [](const Config& c) { return c.optim.name != "adam" && c.optim.name != "adamw"; }},
        {"optim.clip_norm", "", [](const Config& c) { return c.optim.clip_norm > 0; }},
        {"optim.clip_value", "", [](const Config& c) { return c.optim.clip_value > 0; }},
        outliers,
        fp16,
        zero},
       "it averages Adam's momentum, of whole parameters: there is no average of gradients to clip, to examine, to "
       "scale or to divide"},
      {{"parallel.hook", "other than fp16 and bf16",
        [](const Config& c) { return ddprun::rounds_buckets(c.parallel.hook); }},
       {divided_gradients},
       "it rounds a bucket as a whole, of which a rank has a part alone"},
      {ignored, and_axes({}, has_own_gradients),
       "several ranks compute parts of the same sample, or compute for each other, and need the same parameters"},
      {server,
       {whole_tensors, fp16, ema, outliers},
       "a server updates a range of elements by itself, by one worker's gradient: it knows of no whole tensors, and of "
       "no other server's decision about a step"},
  };
}

std::vector<Refusal> strategy_rows() {
  return {
      {strategy, and_axes({zero, micro_batches}, has_no_micro_batches),
       "ranks, or devices, that divide a model or its state make every step together, of one gradient"},
      {{"parallel.strategy", "= local_sgd and parameter_server", is_asynchronous},
       {hook, sync_batch_norm, balance},
       "each rank steps by gradients of its own: there is no average to round, and no step of all ranks together"},
      {shards, and_axes({strategy, hook, zero, balance, find_unused, static_graph, ignored, quantization}),
       "the bits of a step would depend on the number of ranks: sums are of shards, in one fixed order"},
  };
}

std::vector<Refusal> layout_rows() {
  return {
      {devices, and_axes({divided_gradients}, has_same_samples),
       "ranks exchange parts of a model, or of its passes, from one device each"},
      {{"parallel.micro_batches", "with parallel.devices", is_device_pipeline},
       {balance},
       "a schedule is of equally many micro-batches at every rank"},
      {sync_batch_norm,
       {micro_batches, balance, data_parallel},
       "ranks or devices may have different numbers of micro-batches, and so no statistics in common"},
      {data_parallel, {experts}, "replicas compute, and the load of experts is counted in the model's own layers"},
      {{"train.device", "= cuda", asks_for_cuda},
       and_axes({server,
                 zero,
                 experts,
                 shards,
                 quantization,
                 {"optim.name", "other than sgd, adam and adamw",
                  [](const Config& c) {
                    return c.optim.name != "sgd" && c.optim.name != "adam" && c.optim.name != "adamw";
                  }},
                 {"optim.offload", "", [](const Config& c) { return !c.optim.offload.empty(); }}},
                has_same_samples),
       "they exchange, round or update only memory of the host so far: use cpu"},
      {{"parallel.devices", "= several CUDA devices",
        [](const Config& c) { return asks_for_cuda(c) && is_divided_among_cuda_devices(c.parallel); }},
       {hook,
        ignored,
        {"parallel.broadcast_buffers", "= false", [](const Config& c) { return !c.parallel.ddp.broadcast_buffers; }}},
       "a model that is divided among CUDA devices has one rank"},
  };
}

}  // namespace

std::string to_string(const SettingValues& values) {
  return values.values.empty() ? std::string(values.key) : fmt::format("{} {}", values.key, values.values);
}

const std::vector<Refusal>& refusals() {
  static const auto all = [] {
    std::vector<Refusal> rows;
    for (auto* part : {gradient_rows, strategy_rows, layout_rows})
      for (auto& row : part()) rows.push_back(std::move(row));
    return rows;
  }();
  return all;
}

const SettingValues* refused_by(const Refusal& refusal, const TrainConfig& config) {
  if (!refusal.one.are_set(config)) return nullptr;
  const auto found =
      std::ranges::find_if(refusal.others, [&](const SettingValues& other) { return other.are_set(config); });
  return found == refusal.others.end() ? nullptr : &*found;
}

}  // namespace ddprun::trainer
