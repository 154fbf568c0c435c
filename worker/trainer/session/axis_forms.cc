#include "worker/trainer/session/axis_forms.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "worker/data/tokens.h"
#include "worker/parallel/forms/context/context_parallel.h"
#include "worker/parallel/forms/expert/expert_parallel.h"
#include "worker/parallel/forms/tensor/tensor_parallel.h"
#include "worker/trainer/config/group_settings.h"

namespace ddprun::trainer {
namespace {

struct Place {
  const TrainConfig& config;
  nn::Module& model;
  const DeviceMesh& mesh;
  const MeshGroups& groups;
};

std::unique_ptr<Form> make_context(const Place& of) {
  return std::make_unique<ContextParallel>(of.model, of.mesh.group("context"));
}

std::unique_ptr<Form> make_tensor(const Place& of) {
  const auto unsharded = of.config.parallel.sequence ? Unsharded::positions : Unsharded::whole;
  return std::make_unique<TensorParallel>(of.model, tensor_plan(of.config.model.name, of.model, unsharded),
                                          of.mesh.group("tensor"));
}

std::unique_ptr<Form> make_expert(const Place& of) {
  return std::make_unique<ExpertParallel>(of.model, of.mesh.group("expert"), of.groups.gradients);
}

struct Maker {
  std::string_view axis;
  std::unique_ptr<Form> (*make)(const Place&);
};

// In this order they are applied.
constexpr std::array makers{Maker{"context", make_context}, Maker{"tensor", make_tensor}, Maker{"expert", make_expert}};

}  // namespace

AxisForms::AxisForms(const TrainConfig& config, nn::Module& model, const DeviceMesh& mesh, const MeshGroups& groups) {
  for (const auto& [name, make] : makers) {
    const ModelAxis& axis = model_axis(name);
    const int ranks = config.parallel.ranks.on(name);
    if (ranks == 1) continue;
    applied_.push_back({&axis, naming_key(axis.key, ranks, [&] { return make({config, model, mesh, groups}); })});
  }
  for (const MeshAxis& axis : mesh.shape().axes())
    for (const auto& [of_axis, form] : applied_)
      if (const auto* shards = form->shards(); shards && of_axis->name() == axis.name) {
        shards_.push_back(shards);
        if (of_axis->has_own_gradients) experts_ = shards;
      }
}

AxisForms::~AxisForms() {
  while (!applied_.empty()) applied_.pop_back();  // a form gives the model back what it found
}

bool AxisForms::any_form(const std::function<bool(const Form&)>& holds) const {
  return std::ranges::any_of(applied_, [&](const Applied& each) { return holds(*each.form); });
}

bool AxisForms::divides_positions() const {
  return any_form([](const Form& form) { return form.divides_positions(); });
}

Tensor AxisForms::own_positions(Tensor all) const {
  for (const auto& [axis, form] : applied_) all = form->own_positions(all);
  return all;
}

bool AxisForms::has_own_losses() const {
  return std::ranges::all_of(
      applied_, [](const Applied& each) { return each.axis->has_own_losses || each.form->group().rank() == 0; });
}

bool AxisForms::needs_equal_passes() const {
  return any_form([](const Form& form) { return form.needs_equal_passes(); });
}

std::unique_ptr<tasks::Task> AxisForms::task_of_own_scores(const tasks::Task& task) const {
  for (const auto& [axis, form] : applied_)
    if (auto cross_entropy = form->cross_entropy(data::ignored_target))
      return task.with_cross_entropy(std::move(cross_entropy));
  return nullptr;
}

std::vector<std::string> AxisForms::own_gradients() const {
  std::vector<std::string> names;
  for (const auto& [axis, form] : applied_)
    for (auto& name : form->own_gradients()) names.push_back(std::move(name));
  return names;
}

void AxisForms::complete_gradients(const optim::NamedParameters& updated) const {
  for (const auto& [axis, form] : applied_) form->complete_gradients(updated);
}

std::chrono::nanoseconds AxisForms::waited() const {
  std::chrono::nanoseconds sum{};
  for (const auto& [axis, form] : applied_) sum += form->group().waited();
  return sum;
}

std::size_t AxisForms::bytes() const {
  std::size_t sum = 0;
  for (const auto& [axis, form] : applied_) sum += form->group().bytes();
  return sum;
}

}  // namespace ddprun::trainer
