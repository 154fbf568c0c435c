#pragma once

#include "worker/nn/module.h"

namespace ddprun::nn {

// (batch, ...) -> (batch, everything else)
class Flatten : public Module {
 private:
  Variable forward(const Variable& input) override;
};

// Modules that compute one after the other; children are named as given, or "0", "1", ...
class Sequential : public Module {
 public:
  Sequential& add(const std::string& name, std::unique_ptr<Module> module);
  Sequential& add(std::unique_ptr<Module> module) { return add(std::to_string(order_.size()), std::move(module)); }

 private:
  Variable forward(const Variable& input) override;
  Part part() const override { return Part::container; }
  std::vector<Piece> sequence() override;

  struct Layer {
    std::string name;
    Module* module;
  };
  std::vector<Layer> order_;
};

}  // namespace ddprun::nn
