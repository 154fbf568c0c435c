#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/nn/models.h"
#include "worker/optim/optimizer.h"
#include "tests/bench/train_step/floor.h"

namespace ddprun::bench {

// A model at the sizes at which it is compared: one row of the table in workload.cc.
struct Workload {
  std::string name;
  std::string model;  // the name for nn::make_model()
  nn::ModelOptions options;
  std::int64_t batch = 64;
  std::int64_t tokens = 0;  // tokens of a sample of text; 0: images
  std::string optimizer = "adam";
  Arithmetic arithmetic;  // arithmetic of one step

  std::int64_t items() const { return batch * (tokens > 0 ? tokens : 1); }  // samples or tokens of a step
};

// batch is the samples of a step, 0 for the model's own. Throws Errc::usage for an unknown name, naming the known ones.
Workload workload_named(std::string_view name, std::int64_t batch = 0);
std::vector<std::string_view> workload_names();

// A model with its optimizer and one batch of random data.
class TrainingStep {
 public:
  explicit TrainingStep(const Workload& workload);

  nn::Module& model() { return *model_; }
  // From now on update() changes these parameters, such as a rank's parts of them, and no others.
  void update_only(const optim::NamedParameters& parameters);
  // Returns the loss of a forward pass; forward calls the model itself or its wrapper.
  template <class Forward>
  Variable loss(Forward forward) {
    return cross_entropy_of(forward(Variable(inputs_)));
  }
  void update();

 private:
  Variable cross_entropy_of(const Variable& scores) const;

  std::string optimizer_name_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor inputs_, labels_;
};

}  // namespace ddprun::bench
