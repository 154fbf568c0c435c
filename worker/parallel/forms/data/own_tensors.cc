#include "worker/parallel/forms/data/own_tensors.h"

#include "common/error.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::count(names, name) > 0;
}

}  // namespace

class OwnTensors::Replacement {
 public:
  Replacement(Named tensors, ProcessGroup& group) : tensors_(std::move(tensors)) {
    for (const auto& [name, tensor] : tensors_) own_.push_back(tensor.clone());
    broadcast(group, references(tensors_));
    for (const auto& [name, tensor] : tensors_) tensor.storage()->bump_version();
  }
  ~Replacement() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].second.copy_from(own_[i]);
      tensors_[i].second.storage()->bump_version();
    }
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

 private:
  Named tensors_;
  std::vector<Tensor> own_;
};

OwnTensors::OwnTensors(const nn::Module& model, const StageTensors& stages, const std::vector<std::string>& ignored,
                       bool broadcast_buffers) {
  for (const auto& [name, parameter] : stages.present(model.named_parameters()))
    if (is_among(ignored, name)) tensors_.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : stages.present(model.named_buffers()))
    if (!broadcast_buffers || is_among(ignored, name)) tensors_.emplace_back(name, buffer);
}

void check_ignored(const nn::Module& model, const std::vector<std::string>& ignored) {
  for (const auto& name : ignored) {
    const auto is_it = [&](const auto& each) { return each.first == name; };
    if (!std::ranges::any_of(model.named_parameters(), is_it) && !std::ranges::any_of(model.named_buffers(), is_it))
      throw make_error(Errc::usage, "ignored_parameters: the model has no parameter or buffer {}", name);
  }
}

std::vector<std::string> ignored_parameters_of(const nn::Module& model, const std::vector<std::string>& ignored) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : model.named_parameters())
    if (is_among(ignored, name)) all.push_back(name);
  return all;
}

std::vector<HookState> OwnTensors::state() const {
  std::vector<HookState> all;
  for (const auto& [name, tensor] : tensors_) all.push_back({"own/" + name, span_of_tensor(tensor)});
  return all;
}

std::shared_ptr<void> OwnTensors::replaced_by_first(ProcessGroup& group) const {
  return tensors_.empty() ? nullptr : std::make_shared<Replacement>(tensors_, group);
}

}  // namespace ddprun
