#include "worker/trainer/state/teacher.h"

#include <memory>

#include "common/error.h"
#include "worker/nn/state.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {
namespace {

void load_weights(nn::Module& teacher, const std::filesystem::path& file) {
  try {
    nn::load_state(teacher, file);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "distill.weights = {}: {}", file.string(), e.what());
  }
}

}  // namespace

tasks::DistillationOptions make_distillation_options(const TrainConfig& config, const data::SampleLayout& layout) {
  const auto& d = config.distill;
  tasks::DistillationOptions options = d.options;
  if (d.teacher.empty()) return options;
  TrainConfig::Model model;
  model.name = d.teacher;
  model.hidden_sizes = d.hidden;
  model.channels = d.channels;
  const std::shared_ptr<nn::Module> teacher = make_model(model, layout, layout.classes, 0);
  load_weights(*teacher, d.weights);
  teacher->train(false);
  teacher->set_requires_grad(false);
  options.teacher = [teacher](const Variable& input) {
    if (input.device().type == DeviceType::cuda) teacher->to(input.device());
    return (*teacher)(input);
  };
  return options;
}

}  // namespace ddprun::trainer
