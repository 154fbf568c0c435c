#include "worker/trainer/state/run_checkpoint.h"

#include <algorithm>
#include <array>
#include <memory>
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

// Returns a target at all ranks of which rank 0 has the memory, as far as it has tensors of these names.
stored::LoadTarget whole_at_first(const NamedTensors& whole, const stored::StoredTensors& stored,
                                  const ProcessGroup& group) {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"replicate", group.size()}}, group.size());
  const std::map<std::string_view, Tensor> by_name(whole.begin(), whole.end());
  stored::LoadTarget target;
  for (const auto& tensor : stored.tensors) {
    target.tensors.push_back({tensor.spec(), {.mesh = mesh, .local = sharding::Owner{"replicate", 0}}});
    const auto own = by_name.find(tensor.spec().name);
    target.own.push_back(group.rank() != 0 || own == by_name.end() ? Tensor() : own->second);
  }
  return target;
}

std::vector<sharding::PlacedTensor> specs_of(const NamedTensors& tensors) {
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{}, 1);
  std::vector<sharding::PlacedTensor> all;
  for (const auto& [name, tensor] : tensors)
    all.push_back({{name, tensor.shape().to_vector(), tensor.dtype()}, {.mesh = mesh}});
  return all;
}

// Checks tensors, and explains a mismatch by the settings that have changed.
void check_part(const stored::StoredFiles& files, stored::Kind kind, const std::vector<sharding::PlacedTensor>& tensors,
                const std::string& changed_settings) {
  try {
    stored::check_tensors(files, kind, tensors, true);
  } catch (const Error& e) {
    if (e.code() != Errc::mismatch || changed_settings.empty()) throw;
    throw make_error(Errc::mismatch, "the checkpoint {} was made with {} ({})", files.folder.string(), changed_settings,
                     e.what());
  }
}

// Checks what a checkpoint holds against what the run has. REQUIRES: parts, or rank 0's whole
void check_all(const checkpoint::RunState& state, const stored::StoredFiles& files, const NamedSettings& settings,
               const WholeState& whole, const PartsTarget* parts) {
  using stored::Kind;
  const auto& saved = state.config;
  check_part(files, Kind::model, parts ? parts->model.tensors : specs_of(whole.model),
             changes(model_keys, saved, settings));
  check_part(files, Kind::optimizer, parts ? parts->optimizer.tensors : specs_of(whole.optimizer),
             changes(optimizer_keys, saved, settings));
  if (!files.state.of(Kind::averages).tensors.empty())
    stored::check_tensors(files, Kind::averages, parts ? parts->averages.tensors : specs_of(whole.averages), false);
}

void load(const stored::StoredFiles& files, bool has_averages, const WholeState& whole, const PartsTarget* parts,
          ProcessGroup& group) {
  using stored::Kind;
  const auto load_kind = [&](Kind kind, const stored::LoadTarget* own, const NamedTensors& tensors) {
    stored::load(files, kind, own ? *own : whole_at_first(tensors, files.state.of(kind), group), group);
  };
  load_kind(Kind::model, parts ? &parts->model : nullptr, whole.model);
  load_kind(Kind::optimizer, parts ? &parts->optimizer : nullptr, whole.optimizer);
  if (!has_averages) return;
  // A file of averages of a whole state has the other tensors, too.
  load_kind(Kind::averages, parts ? &parts->averages : nullptr, with_averages(whole.model, whole.averages));
}

// Returns whether averages are loaded. wanted: whether rank 0 has some.
bool has_averages(const stored::StoredFiles& files, bool wanted, ProcessGroup& group) {
  std::vector<std::int64_t> first{wanted ? 1 : 0};
  group.broadcast(span_of(first), 0, {.blocking = true});
  if (first[0] == 0) return false;
  if (!files.state.of(stored::Kind::averages).tensors.empty()) return true;
  if (group.rank() == 0)
    log::warn("train.ema: the checkpoint {} has no averages of the parameters, so they begin anew",
              files.folder.string());
  return false;
}

// Finds the checkpoint from which the run goes on. Collective; the result is the same at all ranks.
std::optional<checkpoint::Found> find_checkpoint(const ResumeOptions& options, const checkpoint::Peers& peers,
                                                 const checkpoint::ContentCheck& check) {
  auto& checkpoints = *options.checkpoints;
  if (options.resume == Resume::never) {
    if (peers.rank == 0 && checkpoints.any())
      log::warn(
          "checkpoint.resume = never: starting from step 0; a later run resumes from the checkpoint of the "
          "highest step, which may be one of those that checkpoint.dir holds already");
    return std::nullopt;
  }
  if (options.resume == Resume::best) {
    if (auto found = checkpoints.best(peers, check)) return found;
    throw Error(Errc::usage, "checkpoint.resume = best, but checkpoint.dir holds no folder best");
  }
  auto found = checkpoints.newest(peers, check);
  if (!found && options.resume == Resume::require)
    throw Error(Errc::usage, "checkpoint.resume = require, but checkpoint.dir holds no checkpoint");
  return found;
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
                                           const Distribute& distribute, const PartsTarget* parts) {
  const checkpoint::Peers peers{.rank = group.rank(),
                                .all_gather = [&](const std::string& own) { return all_gather_bytes(group, own); }};
  std::optional<stored::StoredFiles> files;
  const auto found = find_checkpoint(
      options, peers, [&files](const auto& each, const auto& by) { files = stored::open_files(each, by); });
  if (!found) return std::nullopt;
  check_position(*found, options);
  if (parts || group.rank() == 0) check_all(found->state, *files, options.settings, whole, parts);
  const bool averages = has_averages(*files, parts ? !parts->averages.tensors.empty() : !whole.averages.empty(), group);
  load(*files, averages, whole, parts, group);
  const auto own = distribute ? distribute(averages) : std::vector<HookState>{};
  restore_hook_state(*found, own, group);
  return found->state;
}

}  // namespace ddprun::trainer
