#include "ddprun/worker/trainer/run_checkpoint.h"

#include <span>
#include <string>
#include <vector>

#include "ddprun/common/error.h"

namespace ddprun::trainer {
namespace {

using optim::NamedTensors;

// Parameters, then buffers.
NamedTensors tensors_of(const nn::Module& model) {
  NamedTensors all;
  for (const auto& [name, parameter] : model.named_parameters()) all.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : model.named_buffers()) all.emplace_back(name, buffer);
  return all;
}

std::vector<checkpoint::TensorView> views_of(const NamedTensors& tensors) {
  std::vector<checkpoint::TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back(
        {name, tensor.dtype(), tensor.shape(), std::span(static_cast<const std::byte*>(tensor.raw()), tensor.bytes())});
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
    if (info->dtype != tensor.dtype() || info->shape != tensor.shape())
      throw make_error(Errc::mismatch, "{}: tensor {} is {} {}, this run needs {} {}", name_of_file, name,
                       ddprun::name_of(info->dtype), to_string(info->shape), ddprun::name_of(tensor.dtype()),
                       to_string(tensor.shape()));
    auto target = tensor;  // a handle on the same elements
    file.read(*info, {static_cast<std::byte*>(target.raw()), target.bytes()});
  }
}

void broadcast_tensors(const NamedTensors& tensors, ProcessGroup& group) {
  for (const auto& [name, tensor] : tensors) {
    auto target = tensor;  // a handle on the same elements
    group.broadcast({target.raw(), static_cast<std::size_t>(target.numel()), target.dtype()}, 0)->wait();
  }
}

// Rank 0's text at every rank.
std::string broadcast_text(std::string text, ProcessGroup& group) {
  std::vector<std::int64_t> size{static_cast<std::int64_t>(text.size())};
  group.broadcast(span_of(size), 0)->wait();
  text.resize(static_cast<std::size_t>(size[0]));
  if (!text.empty()) group.broadcast({text.data(), text.size(), DType::uint8}, 0)->wait();
  return text;
}

}  // namespace

checkpoint::Content content_of(const nn::Module& model, const optim::Optimizer& optimizer,
                               const checkpoint::RunState& state) {
  return {views_of(tensors_of(model)), views_of(optimizer.state()), state};
}

void load(const checkpoint::Found& found, nn::Module& model, optim::Optimizer& optimizer) {
  load_tensors(found.model(), (found.folder / "model.safetensors").string(), tensors_of(model));
  load_tensors(found.optimizer(), (found.folder / "optimizer.safetensors").string(), optimizer.state());
  optimizer.set_step_count(found.state.step);
}

std::optional<checkpoint::RunState> resume(const checkpoint::Checkpoints* checkpoints, nn::Module& model,
                                           optim::Optimizer& optimizer, ProcessGroup& group) {
  std::string text;
  if (group.rank() == 0 && checkpoints) {
    if (const auto found = checkpoints->newest()) {
      load(*found, model, optimizer);
      text = checkpoint::to_json(found->state);
    }
  }
  text = broadcast_text(std::move(text), group);
  if (text.empty()) return std::nullopt;
  const auto state = checkpoint::run_state_from_json(text, "rank 0's checkpoint");
  broadcast_tensors(tensors_of(model), group);
  broadcast_tensors(optimizer.state(), group);
  optimizer.set_step_count(state.step);
  return state;
}

}  // namespace ddprun::trainer
