#pragma once

#include <memory>
#include <vector>

#include "worker/optim/optimizer.h"

// The functions behind the table in optimizer.cc, which has checked what it passes on. Each source has the rule by
// which its optimizer updates parameters, and the names of its state.
namespace ddprun::optim {

using Maker = std::unique_ptr<Optimizer>(const OptimOptions&, std::vector<ParameterGroup>);

Maker make_sgd;
Maker make_adam;
Maker make_adamw;
Maker make_rmsprop;
Maker make_adagrad;
Maker make_lamb;
Maker make_lars;
Maker make_muon;

}  // namespace ddprun::optim
