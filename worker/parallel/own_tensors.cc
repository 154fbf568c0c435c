#include "worker/parallel/own_tensors.h"

#include "worker/parallel/group_tensors.h"

namespace ddprun {

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

std::vector<HookState> OwnTensors::state() const {
  std::vector<HookState> all;
  for (const auto& [name, tensor] : tensors_) all.push_back({"own/" + name, span_of_tensor(tensor)});
  return all;
}

std::shared_ptr<void> OwnTensors::replaced_by_first(ProcessGroup& group) const {
  return tensors_.empty() ? nullptr : std::make_shared<Replacement>(tensors_, group);
}

}  // namespace ddprun
