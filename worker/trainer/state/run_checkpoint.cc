#include "worker/trainer/state/run_checkpoint.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "common/error.h"
#include "common/log.h"
#include "worker/comm/collectives.h"
#include "worker/trainer/state/hook_checkpoint.h"

namespace ddprun::trainer {
namespace {

using optim::NamedTensors;
using NamedSettings = std::map<std::string, std::string>;

// The settings that decide which tensors there are, and their shapes.
constexpr std::array<std::string_view, 17> model_keys{
    "model.name",         "model.hidden",  "model.stem",       "model.channels", "model.preset",      "model.layers",
    "model.width",        "model.context", "model.vocabulary", "model.bias",     "model.feedforward", "model.experts",
    "model.expert_every", "data.name",     "data.shape",       "data.outputs",   "data.labels"};
constexpr std::array<std::string_view, 5> optimizer_keys{"optim.name", "optim.momentum", "optim.dampening",
                                                         "optim.centered", "model.freeze"};

// Returns the tensors with averages instead of their parameters: the content of a file of averages.
NamedTensors with_averages(const NamedTensors& model, const NamedTensors& averages) {
  const std::map<std::string_view, Tensor> others(averages.begin(), averages.end());
  NamedTensors all = model;
  for (auto& [name, tensor] : all)
    if (const auto other = others.find(name); other != others.end()) tensor = other->second;
  return all;
}

std::vector<checkpoint::TensorView> views_of(const NamedTensors& tensors) {
  std::vector<checkpoint::TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name, tensor.dtype(), tensor.shape().to_vector(),
                     std::span(static_cast<const std::byte*>(tensor.raw()), tensor.bytes())});
  return views;
}

void load_tensors(const checkpoint::SafetensorsFile& file, const std::string& name_of_file,
                  const NamedTensors& tensors) {
  if (file.tensors().size() != tensors.size())
    throw make_error(Errc::mismatch, "{} holds {} tensors, this run has {}", name_of_file, file.tensors().size(),
                     tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto* info = file.find(name);
    if (!info) throw make_error(Errc::mismatch, "{} has no tensor {}", name_of_file, name);
    if (info->dtype != tensor.dtype() || Shape(info->shape) != tensor.shape())
      throw make_error(Errc::mismatch, "{}: tensor {} is {} {}, this run needs {} {}", name_of_file, name,
                       ddprun::name_of(info->dtype), to_string(info->shape), ddprun::name_of(tensor.dtype()),
                       to_string(tensor.shape()));
    auto target = tensor;  // a handle on the same elements
    Tensor on_host = target.device().type == DeviceType::cpu ? target : Tensor::empty(target.shape(), target.dtype());
    file.read(*info, {static_cast<std::byte*>(on_host.raw()), on_host.bytes()});
    if (target.device().type != DeviceType::cpu) target.copy_from(on_host);
  }
}

// Returns a text such as "optim.name = sgd, this run has adam"; empty if none of these settings has changed.
std::string changes(std::span<const std::string_view> keys, const NamedSettings& saved, const NamedSettings& own) {
  std::vector<std::string> all;
  for (const auto key : keys) {
    const auto before = saved.find(std::string(key));
    const auto now = own.find(std::string(key));
    if (before == saved.end() || now == own.end() || before->second == now->second) continue;
    all.push_back(fmt::format("{} = {}, this run has {}", key, before->second, now->second));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

// Loads tensors, and explains a mismatch by the settings that have changed.
void load_part(const checkpoint::Found& found, const char* file_name, const checkpoint::SafetensorsFile& file,
               const NamedTensors& tensors, const std::string& changed_settings) {
  try {
    load_tensors(file, (found.folder / file_name).string(), tensors);
  } catch (const Error& e) {
    if (e.code() != Errc::mismatch || changed_settings.empty()) throw;
    throw make_error(Errc::mismatch, "the checkpoint {} was made with {} ({})", found.folder.string(), changed_settings,
                     e.what());
  }
}

// Checks the position: a data set with other settings may have been larger.
void check_position(const checkpoint::Found& found, const ResumeOptions& options) {
  const auto is_of_data = [](const auto& setting) { return setting.first.starts_with("data."); };
  const auto has_changed = [&](const auto& setting) {
    const auto now = options.settings.find(setting.first);
    return is_of_data(setting) && (now == options.settings.end() || now->second != setting.second);
  };
  const auto& state = found.state;
  if (!options.epoch_samples || state.samples <= *options.epoch_samples) return;
  if (std::ranges::any_of(state.config, has_changed)) return;
  throw make_error(Errc::io, "{}: member samples is {}, expected at most {}, the samples of an epoch",
                   (found.folder / "state.json").string(), state.samples, *options.epoch_samples);
}

void load(const checkpoint::Found& found, const NamedSettings& settings, const WholeState& whole) {
  const auto& saved = found.state.config;
  load_part(found, "model.safetensors", found.model(), whole.model, changes(model_keys, saved, settings));
  load_part(found, "optimizer.safetensors", found.optimizer(), whole.optimizer,
            changes(optimizer_keys, saved, settings));
}

// Returns whether there were averages.
bool load_averages(const checkpoint::Found& found, const WholeState& whole) {
  if (found.has_ema) {
    load_tensors(found.ema(), (found.folder / "ema.safetensors").string(), with_averages(whole.model, whole.averages));
    return true;
  }
  log::warn("train.ema: the checkpoint {} has no averages of the parameters, so they begin anew",
            found.folder.string());
  return false;
}

// Rank 0's part of resume().
std::optional<checkpoint::Found> find_checkpoint(const ResumeOptions& options) {
  if (options.resume == Resume::never) {
    if (options.checkpoints->any())
      log::warn(
          "checkpoint.resume = never: starting from step 0; a later run resumes from the checkpoint of the "
          "highest step, which may be one of those that checkpoint.dir holds already");
    return std::nullopt;
  }
  if (options.resume == Resume::best) {
    if (auto found = options.checkpoints->best()) return found;
    throw Error(Errc::io, "checkpoint.resume = best, but checkpoint.dir holds no folder best");
  }
  auto found = options.checkpoints->newest();
  if (!found && options.resume == Resume::require)
    throw Error(Errc::io, "checkpoint.resume = require, but checkpoint.dir holds no checkpoint");
  return found;
}

bool is_true_at_first(bool value, ProcessGroup& group) {
  std::vector<std::int64_t> first{value ? 1 : 0};
  group.broadcast(span_of(first), 0)->wait();
  return first[0] != 0;
}

}  // namespace

NamedTensors tensors_of(const nn::Module& model) {
  NamedTensors all;
  for (const auto& [name, parameter] : model.named_parameters()) all.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : model.named_buffers()) all.emplace_back(name, buffer);
  return all;
}

WholeState tensors_of(const TrainState& state) {
  return {.model = tensors_of(*state.model),
          .optimizer = state.optimizer->state(),
          .averages = state.ema ? state.ema->averages() : NamedTensors{}};
}

checkpoint::Content content_of(const WholeState& whole, const checkpoint::RunState& state) {
  return {.model = views_of(whole.model),
          .optimizer = views_of(whole.optimizer),
          .state = state,
          .ema = whole.averages.empty() ? std::vector<checkpoint::TensorView>()
                                        : views_of(with_averages(whole.model, whole.averages))};
}

std::optional<checkpoint::RunState> resume(const ResumeOptions& options, const WholeState& whole, ProcessGroup& group,
                                           const Distribute& distribute) {
  std::string text;
  bool has_averages = false;
  std::optional<checkpoint::Found> found;
  if (group.rank() == 0 && options.checkpoints) {
    found = find_checkpoint(options);
    if (found) {
      check_position(*found, options);
      load(*found, options.settings, whole);
      has_averages = !whole.averages.empty() && load_averages(*found, whole);
      text = checkpoint::to_json(found->state);
    }
  }
  text = broadcast_bytes(group, std::move(text), 0);
  if (text.empty()) return std::nullopt;
  has_averages = is_true_at_first(has_averages, group);
  const auto own = distribute ? distribute(has_averages) : std::vector<HookState>{};
  restore_hook_state(found ? &*found : nullptr, own, group);
  return checkpoint::run_state_from_json(text, "rank 0's checkpoint");
}

}  // namespace ddprun::trainer
