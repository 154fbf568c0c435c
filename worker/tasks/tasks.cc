#include "worker/tasks/tasks.h"

#include "common/error.h"

namespace ddprun::tasks {
namespace {

constexpr std::string_view automatic = "auto";

struct TaskEntry {
  std::string_view name;
  std::string_view samples;  // the samples that it is learnt from
  bool (*suits)(const data::SampleLayout&);
  std::unique_ptr<Task> (*make)(const TaskOptions&);
};

constexpr TaskEntry rows[] = {
    {"classification", "class labels", [](const data::SampleLayout& l) { return l.classes > 0; }, make_classification},
    {"language_modelling", "tokens", [](const data::SampleLayout& l) { return l.vocabulary > 0; },
     make_language_modelling},
    {"regression", "numbers as targets",
     [](const data::SampleLayout& l) { return l.classes == 0 && l.vocabulary == 0; }, make_regression},
    {"distillation", "class labels", [](const data::SampleLayout& l) { return l.classes > 0; }, make_distillation},
    {"mean_output", "numbers as targets",
     [](const data::SampleLayout& l) { return l.classes == 0 && l.vocabulary == 0; }, make_mean_output},
};

}  // namespace

std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options) {
  for (const auto& row : rows) {
    if (name != row.name && name != automatic) continue;
    if (row.suits(options.layout)) return row.make(options);
    if (name == row.name) throw make_error(Errc::usage, "{} needs {}, this data set has none", name, row.samples);
  }
  throw make_error(Errc::usage, "there is no task {} for this data set", name);
}

std::vector<std::string> task_names() {
  std::vector<std::string> names{std::string(automatic)};
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace ddprun::tasks
