#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/tasks/task.h"

namespace ddprun::tasks {

struct DistillationOptions {
  Forward teacher;  // in evaluation mode; called without recording
  double temperature = 4;
  double weight = 0.5;  // that of the teacher, 0 .. 1
};

struct TaskOptions {
  data::SampleLayout layout;  // that of the data set
  DistillationOptions distillation = {};
};

// Makes the task of this name; "auto" is the first one that can be learnt from such samples. Throws Errc::usage for an
// unknown name and for samples from which it cannot be learnt.
std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options);

// Returns "auto" and the names of the table in tasks.cc.
std::vector<std::string> task_names();

// Each function is in a file of its own. REQUIRES: samples as the table says.
std::unique_ptr<Task> make_classification(const TaskOptions& options);
std::unique_ptr<Task> make_distillation(const TaskOptions& options);
std::unique_ptr<Task> make_language_modelling(const TaskOptions& options);
std::unique_ptr<Task> make_mean_output(const TaskOptions& options);
std::unique_ptr<Task> make_regression(const TaskOptions& options);

}  // namespace ddprun::tasks
