#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/nn/models.h"
#include "worker/optim/lr_schedule.h"
#include "worker/trainer/config/checks.h"
#include "worker/trainer/config/keys.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/recovery_settings.h"

namespace ddprun::trainer {
namespace {

using Names = std::vector<std::string_view>;

// Settings that have an effect only if the condition holds.
struct Need {
  Names keys;
  Names deciders;  // the settings on which the condition depends
  std::function<bool(const TrainConfig&, const Settings&)> holds;
  std::string what;  // completes "it needs "
};

// Settings that commands other than training read, with training or without it.
struct CommandNeed {
  Names keys;
  bool (*holds)(std::string_view command, const TrainConfig&);
  std::string_view what;  // completes "it needs "
};

bool is_among(std::string_view value, const Names& values) {
  return std::ranges::count(values, value) > 0;
}

// Returns a text such as "optim.name = sgd, rmsprop, lars or muon".
std::string alternatives(std::string_view key, std::span<const std::string_view> values) {
  const auto last = values.back();
  const auto others = values.first(values.size() - 1);
  if (others.empty()) return fmt::format("{} = {}", key, last);
  return fmt::format("{} = {} or {}", key, fmt::join(others, ", "), last);
}

// A need that the decider has one of these values.
Need one_of(Names keys, std::string_view decider, Names values) {
  const std::string what = alternatives(decider, values);
  return {std::move(keys),
          {decider},
          [decider, values = std::move(values)](const TrainConfig&, const Settings& settings) {
            return is_among(settings.find(decider)->print(), values);
          },
          what};
}

Need where(Names keys, Names deciders, bool (*holds)(const TrainConfig&), std::string what) {
  return {std::move(keys), std::move(deciders), [holds](const TrainConfig& c, const Settings&) { return holds(c); },
          std::move(what)};
}

// A plugin's model gets the options of all built-in ones.
Need of_models(Names keys, Names models) {
  auto need = one_of(std::move(keys), "model.name", std::move(models));
  need.holds = [built_in = std::move(need.holds)](const TrainConfig& c, const Settings& settings) {
    return !is_built_in(c.model) || built_in(c, settings);
  };
  return need;
}

Names with_batch_norm() {
  return {"cnn_bn", "two_part_resnet", "resnet18", "resnet50"};
}

std::vector<Need> model_needs() {
  return {
      of_models({"model.hidden"}, {"mlp"}),
      of_models({"model.dropout"}, {"mlp", "transformer", "gpt"}),
      of_models({"model.stem", "model.channels"}, {"resnet18", "resnet50"}),
      of_models({"model.preset", "model.layers", "model.heads", "model.width"}, {"transformer", "gpt"}),
      of_models({"model.context", "model.vocabulary", "model.bias"}, {"gpt"}),
      of_models({"model.feedforward", "model.activation", "model.norm_first"}, {"transformer"}),
      one_of({"model.experts"}, "model.name", {"gpt"}),
      where(
          {"model.experts_per_token", "model.expert_every", "model.capacity_factor", "model.load_balancing_loss",
           "model.router_z_loss"},
          {"model.experts"}, [](const TrainConfig& c) { return c.model.experts.experts > 0; }, "model.experts"),
      where(
          {"model.weights_prefix", "model.weights_except"}, {"model.weights"},
          [](const TrainConfig& c) { return !c.model.weights.empty(); }, "model.weights"),
  };
}

// A plugin's data set gets a folder, numbers of samples and a seed; the context is that of tokens, maybe a plugin's.
bool is_plugin(const TrainConfig::Data& data) {
  return !is_among(data.name, built_in_data());
}

bool may_be_generated(const TrainConfig& c) {
  const auto& d = c.data;
  return is_plugin(d) || d.name == "digits" || d.name == "random" ||
         ((d.name == "mnist" || d.name == "cifar10") && d.dir.empty());
}

std::vector<Need> data_needs() {
  return {
      where(
          {"data.dir"}, {"data.name"},
          [](const TrainConfig& c) { return c.data.name != "digits" && c.data.name != "random"; },
          "a data set in files"),
      where({"data.samples", "data.test_samples", "data.seed"}, {"data.name", "data.dir"}, may_be_generated,
            "data.name = digits or random, or mnist or cifar10 without a data.dir"),
      one_of({"data.normalize"}, "data.name", {"mnist", "digits", "cifar10", "image_folder"}),
      one_of({"data.image_size"}, "data.name", {"image_folder"}),
      one_of({"data.shape", "data.outputs", "data.labels", "data.noise"}, "data.name", {"random"}),
      one_of({"data.vocabulary"}, "data.name", {"tokens"}),
      one_of({"data.tokenizer"}, "data.name", {"text", "tokens"}),
      where(
          {"data.context"}, {"data.name"},
          [](const TrainConfig& c) {
            return is_plugin(c.data) || is_among(c.data.name, {"text", "tokens"});
          },
          "data.name = text or tokens"),
      where(
          {"data.prefetch"}, {"data.workers"}, [](const TrainConfig& c) { return c.data.loader.workers > 0; },
          "data.workers"),
      // The workers of a server take their samples one update after the other.
      where(
          {"data.prefetch"}, {"parallel.strategy"},
          [](const TrainConfig& c) { return c.parallel.strategy != "parameter_server"; }, "another strategy"),
      where(
          {"data.drop_last"}, {"parallel.strategy", "train.global_batch_size"},
          [](const TrainConfig& c) {
            return c.parallel.strategy != "parameter_server" || c.train.global_batch_size > 0;
          },
          "another strategy, or train.global_batch_size"),
  };
}

bool computes_with_fp16(const TrainConfig& c) {
  return c.train.precision == "fp16";
}

std::vector<Need> train_needs() {
  return {
      where({"train.loss_scale", "train.loss_scale_growth", "train.loss_scale_backoff",
             "train.loss_scale_growth_interval"},
            {"train.precision"}, computes_with_fp16, "train.precision = fp16"),
      one_of({"train.tf32"}, "train.device", {"cuda", "auto"}),
      where(
          {"train.winograd"}, {"model.name"},
          [](const TrainConfig& c) { return !is_built_in(c.model) || nn::smallest_image(c.model.name) > 0; },
          "a model with convolutions"),
      where(
          {"train.recompute"}, {"model.name"},
          [](const TrainConfig& c) {
            return c.train.recompute != "blocks" || !is_built_in(c.model) ||
                   is_among(c.model.name, {"transformer", "gpt", "resnet18", "resnet50"});
          },
          "model.name = transformer, gpt, resnet18 or resnet50"),
      where(
          {"train.preempt_signal"}, {"checkpoint.dir"},
          [](const TrainConfig& c) { return !c.checkpoint.dir.empty() || c.train.preempt_signal == "none"; },
          "checkpoint.dir"),
      one_of({"distill.teacher", "distill.weights", "distill.hidden", "distill.channels", "distill.temperature",
              "distill.weight"},
             "train.task", {"distillation"}),
      one_of({"distill.hidden"}, "distill.teacher", {"mlp"}),
      one_of({"distill.channels"}, "distill.teacher", {"resnet18", "resnet50"}),
  };
}

bool has_momentum(const TrainConfig& c) {
  return c.optim.momentum > 0;
}

std::vector<Need> optimizer_needs() {
  return {
      one_of({"optim.momentum"}, "optim.name", {"sgd", "rmsprop", "lars", "muon"}),
      one_of({"optim.dampening"}, "optim.name", {"sgd"}),
      one_of({"optim.nesterov"}, "optim.name", {"sgd", "muon"}),
      where({"optim.dampening", "optim.nesterov"}, {"optim.momentum"}, has_momentum, "optim.momentum"),
      one_of({"optim.beta1", "optim.beta2"}, "optim.name", {"adam", "adamw", "lamb", "muon"}),
      one_of({"optim.eps"}, "optim.name", {"adam", "adamw", "rmsprop", "adagrad", "lamb", "muon"}),
      one_of({"optim.alpha", "optim.centered"}, "optim.name", {"rmsprop"}),
      one_of({"optim.lr_decay"}, "optim.name", {"adagrad"}),
      one_of({"optim.trust_coefficient"}, "optim.name", {"lars"}),
      one_of({"optim.ns_steps", "optim.adjust_lr_fn"}, "optim.name", {"muon"}),
      where(
          {"optim.offload"}, {"optim.name", "optim.momentum"},
          [](const TrainConfig& c) { return c.optim.name != "sgd" || has_momentum(c); },
          "an optimizer that has a state"),
      where(
          {"optim.decay_one_dimensional"}, {"optim.weight_decay"},
          [](const TrainConfig& c) { return c.optim.weight_decay > 0; }, "optim.weight_decay"),
  };
}

std::vector<Need> schedule_needs() {
  return {
      where(
          {"optim.schedule_unit"}, {"optim.schedule", "optim.warmup"},
          [](const TrainConfig& c) {
            return c.optim.lr_schedule.warmup > 0 || !is_among(c.optim.lr_schedule.name, {"constant", "plateau"});
          },
          "a schedule that counts steps or epochs, or optim.warmup"),
      where(
          {"optim.warmup_start"}, {"optim.warmup"}, [](const TrainConfig& c) { return c.optim.lr_schedule.warmup > 0; },
          "optim.warmup"),
      where(
          {"optim.schedule_length"}, {"optim.schedule"},
          [](const TrainConfig& c) { return optim::LrSchedule::has_length(c.optim.lr_schedule.name); },
          "one that has an end: cosine, linear or onecycle"),
      one_of({"optim.end_factor"}, "optim.schedule", {"cosine", "linear"}),
      one_of({"optim.gamma"}, "optim.schedule", {"step", "multistep"}),
      one_of({"optim.step_size"}, "optim.schedule", {"step"}),
      one_of({"optim.milestones"}, "optim.schedule", {"multistep"}),
      one_of({"optim.pct_start", "optim.div_factor", "optim.final_div_factor"}, "optim.schedule", {"onecycle"}),
      one_of({"optim.factor", "optim.patience", "optim.threshold", "optim.cooldown", "optim.min_lr"}, "optim.schedule",
             {"plateau"}),
  };
}

// A need that a chain of hooks "a+b" has one of these.
Need of_hooks(Names keys, Names hooks) {
  const std::string what = alternatives("parallel.hook", hooks);
  const auto holds = [hooks = std::move(hooks)](const TrainConfig& c, const Settings&) {
    std::string_view chain = c.parallel.hook;
    for (auto end = chain.find('+'); end != std::string_view::npos; end = chain.find('+')) {
      if (is_among(chain.substr(0, end), hooks)) return true;
      chain.remove_prefix(end + 1);
    }
    return is_among(chain, hooks);
  };
  return {std::move(keys), {"parallel.hook"}, holds, what};
}

std::vector<Need> gradient_needs() {
  return {
      one_of({"dist.staging_kb"}, "dist.backend", {"auto", "shm", "hierarchical"}),
      where(
          {"dist.bucket_mb", "parallel.find_unused_parameters", "parallel.static_graph",
           "parallel.delay_all_reduce_named_params"},
          {"parallel.strategy", "parallel.start_localSGD_iter"},
          [](const TrainConfig& c) {
            const auto& p = c.parallel;
            return p.strategy != "parameter_server" &&
                   (p.strategy != "local_sgd" || p.local_sgd.start_localSGD_iter > 0);
          },
          "gradients that are averaged: another strategy, or with local_sgd parallel.start_localSGD_iter"),
      where(
          {"parallel.param_to_hook_all_reduce"}, {"parallel.delay_all_reduce_named_params"},
          [](const TrainConfig& c) { return !c.parallel.delay_all_reduce_named_params.empty(); },
          "parallel.delay_all_reduce_named_params"),
      // Stages 2 and 3 reduce, and free, buckets in the order of the backward pass.
      one_of({"parallel.delay_all_reduce_named_params"}, "parallel.zero", {"0", "1"}),
      // local_sgd averages parameters without regard to it.
      one_of({"data.ledger"}, "parallel.strategy", {"ddp", "data_parallel", "local_sgd"}),
      one_of({"parallel.ignored_parameters"}, "parallel.strategy", {"ddp", "data_parallel"}),
      where(
          {"parallel.broadcast_buffers"}, {"model.name", "train.quantization_aware"},
          [](const TrainConfig& c) {
            return c.train.quantization_aware || !is_built_in(c.model) || is_among(c.model.name, with_batch_norm());
          },
          "a model with buffers: batch norm, or train.quantization_aware"),
      where(
          {"parallel.broadcast_buffers"}, {"parallel.strategy"},
          [](const TrainConfig& c) { return c.parallel.strategy != "parameter_server"; }, "another strategy"),
      where(
          {"parallel.broadcast_buffers"}, {"parallel.expert"},
          [](const TrainConfig& c) { return c.parallel.ranks.on("expert") == 1; }, "parallel.expert = 1"),
      of_models({"parallel.sync_batch_norm"}, with_batch_norm()),
      of_hooks({"parallel.topk_fraction"}, {"topk"}),
      of_hooks({"parallel.freeze_step"}, {"onebit"}),
      of_hooks({"parallel.matrix_approximation_rank", "parallel.start_powerSGD_iter", "parallel.use_error_feedback",
                "parallel.warm_start"},
               {"powersgd", "batched_powersgd"}),
      of_hooks({"parallel.min_compression_rate"}, {"powersgd"}),
  };
}

bool has_micro_batches(const TrainConfig& c) {
  return c.parallel.micro_batches > 0;
}

bool has_several_places(const TrainConfig& c) {
  return c.parallel.ranks.on("pipeline") > 1 || parse_names(c.parallel.devices).size() > 1;
}

// Returns the keys on which has_sharded_state() and recovers_in_process() depend.
Names keys_of_sharding() {
  Names keys{"recovery.mode", "parallel.zero"};
  for (const ModelAxis& axis : model_axes()) keys.push_back(axis.key);
  return keys;
}

std::vector<Need> layout_needs() {
  return {
      one_of(
          {"parallel.local_sgd_period", "parallel.start_localSGD_iter", "parallel.outer_lr", "parallel.outer_momentum",
           "parallel.fragments", "parallel.fragment_sync_delay", "parallel.fragment_update_alpha"},
          "parallel.strategy", {"local_sgd"}),
      where(
          {"parallel.fragment_update_alpha"}, {"parallel.fragment_sync_delay"},
          [](const TrainConfig& c) { return c.parallel.local_sgd.fragment_sync_delay > 0; },
          "parallel.fragment_sync_delay"),
      one_of({"parallel.servers", "parallel.staleness", "parallel.round"}, "parallel.strategy", {"parameter_server"}),
      one_of({"parallel.devices"}, "parallel.strategy", {"ddp", "data_parallel"}),
      where({"parallel.split", "parallel.micro_batches"}, {"parallel.devices", "parallel.pipeline"}, has_several_places,
            "several parallel.devices, or parallel.pipeline"),
      where({"parallel.schedule", "parallel.virtual_stages"}, {"parallel.micro_batches"}, has_micro_batches,
            "parallel.micro_batches"),
      one_of({"parallel.split"}, "parallel.strategy", {"ddp"}),
      // Layers move between ranks that have one stage each.
      one_of({"parallel.balance"}, "parallel.virtual_stages", {"1"}),
      one_of({"parallel.reshard_after_forward"}, "parallel.zero", {"3"}),
      one_of({"parallel.shard_group"}, "parallel.zero", {"2", "3"}),
      where(
          {"parallel.sequence", "train.check_placements"}, {"parallel.tensor"},
          [](const TrainConfig& c) { return c.parallel.ranks.on("tensor") > 1; }, "parallel.tensor"),
      one_of({"parallel.sequence"}, "model.name", {"gpt"}),
      where(
          {"parallel.expert"}, {"model.experts"},
          [](const TrainConfig& c) { return c.model.experts.experts > 0 || c.parallel.ranks.on("expert") == 1; },
          "model.experts"),
      where(
          {"checkpoint.peers"}, keys_of_sharding(),
          [](const TrainConfig& c) { return has_sharded_state(c) && recovers_in_process(c); },
          "recovery.mode = in_process, and ranks that have parts of the state, as with parallel.zero"),
      where({"checkpoint.heal_memory"}, {"recovery.mode"}, recovers_in_process, "recovery.mode = in_process"),
      where(
          {"checkpoint.every_steps", "checkpoint.keep", "checkpoint.keep_best", "checkpoint.background",
           "checkpoint.timeout", "checkpoint.resume"},
          {"checkpoint.dir"}, [](const TrainConfig& c) { return !c.checkpoint.dir.empty(); }, "checkpoint.dir"),
      one_of({"recovery.wait", "recovery.standby", "recovery.file"}, "recovery.mode", {"in_process"}),
  };
}

// Returns the needs of keys that their command reads.
std::vector<Need> command_needs() {
  return {
      where(
          {"generate.top_k", "generate.seed"}, {"generate.temperature"},
          [](const TrainConfig& c) { return c.generate.temperature > 0; }, "generate.temperature"),
      where(
          {"quantize.samples"}, {"quantize.mode", "train.quantization_aware"},
          [](const TrainConfig& c) {
            return c.quantize.mode == "static" || (c.quantize.mode == "auto" && c.train.quantization_aware);
          },
          "quantize.mode = static"),
  };
}

const std::vector<Need>& needs() {
  static const auto all = [] {
    std::vector<Need> rows;
    for (auto* part : {model_needs, data_needs, train_needs, optimizer_needs, schedule_needs, gradient_needs,
                       layout_needs, command_needs})
      for (auto& row : part()) rows.push_back(std::move(row));
    return rows;
  }();
  return all;
}

const std::vector<CommandNeed>& needs_of_command() {
  static const std::vector<CommandNeed> all{
      {{"generate.prompt", "generate.tokens", "generate.temperature", "generate.top_k", "generate.seed",
        "generate.quantized"},
       [](std::string_view command, const TrainConfig&) { return command == "generate"; },
       "ddprun-worker generate"},
      {{"predict.input", "predict.output", "predict.quantized"},
       [](std::string_view command, const TrainConfig&) { return command == "predict"; },
       "ddprun-worker predict"},
      {{"tokenize.vocabulary"},
       [](std::string_view command, const TrainConfig&) { return command == "tokenize"; },
       "ddprun-worker tokenize"},
      {{"quantize.file", "quantize.samples"},
       [](std::string_view command, const TrainConfig&) { return command == "quantize"; },
       "ddprun-worker quantize"},
      {{"quantize.mode"},
       [](std::string_view command, const TrainConfig& c) {
         return command == "quantize" || (command == "generate" && !c.generate.quantized.empty()) ||
                (command == "predict" && !c.predict.quantized.empty());
       },
       "ddprun-worker quantize, or generate.quantized or predict.quantized in those commands"},
      {{"profile.steps"},
       [](std::string_view command, const TrainConfig&) { return command == "train" || command == "profile"; },
       "training, or ddprun-worker profile"},
      {{"profile.warmup", "profile.trace"},
       [](std::string_view command, const TrainConfig& c) {
         return command == "profile" || (command == "train" && c.profile.steps > 0);
       },
       "ddprun-worker profile, or profile.steps"},
  };
  return all;
}

// Returns whether the value is the default and means "not used".
bool asks_for_nothing(const Setting& setting) {
  const auto value = setting.print();
  return value == setting.fallback && is_among(value, {"0", "false", ""});
}

// Returns a text such as "optim.name = adam (train.cfg:3)".
std::string shown(const Setting& setting) {
  const auto value = setting.print();
  return fmt::format("{} = {} ({})", setting.key, value.empty() ? "\"\"" : value, setting.source.where);
}

// The reason why a setting has no effect.
struct Idle {
  std::string why;
  SettingSource cause;  // that of the setting which decides it
};

Idle idle_by(const Need& need, const Settings& settings) {
  std::vector<std::string> deciders;
  SettingSource cause;
  for (const auto key : need.deciders) {
    const auto& decider = *settings.find(key);
    deciders.push_back(shown(decider));
    if (decider.source.origin >= cause.origin) cause = decider.source;
  }
  return {fmt::format("it has no effect with {}; it needs {}", fmt::join(deciders, " and "), need.what), cause};
}

// Returns why the setting has no effect; among several reasons one that is the setting's own mistake.
std::optional<Idle> idle(const Setting& setting, const TrainConfig& config, const Settings& settings) {
  std::optional<Idle> found;
  for (const auto& need : needs()) {
    if (!is_among(setting.key, need.keys) || need.holds(config, settings)) continue;
    auto reason = idle_by(need, settings);
    if (setting.source.origin >= reason.cause.origin) return reason;
    if (!found) found = std::move(reason);
  }
  return found;
}

// Returns null if this command reads the key.
const CommandNeed* other_command(const Setting& setting, const TrainConfig& config, std::string_view command) {
  for (const auto& need : needs_of_command())
    if (is_among(setting.key, need.keys) && !need.holds(command, config)) return &need;
  return nullptr;
}

std::string name_of(std::string_view command) {
  return command == "train" ? "training" : fmt::format("ddprun-worker {}", command);
}

}  // namespace

std::vector<std::string> settle_needs(Settings& settings, const TrainConfig& config, std::string_view command) {
  std::vector<std::string> notices;
  std::set<std::string_view> settled;
  // A setting that gets its default may be one that another setting needs.
  for (bool changed = true; std::exchange(changed, false);) {
    for (const auto& setting : settings.all()) {
      if (setting.source.origin == Origin::fallback || asks_for_nothing(setting) || settled.contains(setting.key))
        continue;
      if (const auto* need = other_command(setting, config, command)) {
        if (setting.source.origin == Origin::file) continue;
        reject(settings, setting.key, fmt::format("it has no effect in {}; it needs {}", name_of(command), need->what));
      }
      const auto found = idle(setting, config, settings);
      if (!found) continue;
      if (setting.source.origin >= found->cause.origin) reject(settings, setting.key, found->why);
      notices.push_back(fmt::format("{}: {} = {}: {}", setting.source.where, setting.key, setting.print(), found->why));
      settings.assign(setting.key, setting.fallback, found->cause);
      settled.insert(setting.key);
      changed = true;
    }
  }
  return notices;
}

bool needs_others(std::string_view key) {
  const auto names_it = [key](const auto& need) { return is_among(key, need.keys); };
  return std::ranges::any_of(needs(), names_it) || std::ranges::any_of(needs_of_command(), names_it);
}

std::string effective_config(const TrainConfig& config, const Settings& settings) {
  return settings.effective([&](const Setting& setting) { return !idle(setting, config, settings); });
}

}  // namespace ddprun::trainer
