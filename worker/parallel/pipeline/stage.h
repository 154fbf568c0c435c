#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/nn/module.h"

namespace ddprun::pipeline {

// A part of a model: pieces (nn::Module::pieces()) that compute one after the other.
//
// Ownership: the model outlives it. Threads: as the model's modules.
struct Stage {
  int number = 0;
  std::vector<nn::Module::Piece> pieces;
  std::vector<std::pair<std::string, Variable>> parameters;  // that it uses, under the model's names and in its order
  std::vector<std::pair<std::string, Tensor>> buffers;

  Variable operator()(const Variable& input) const;
};

// Cuts a model: cuts[i] is the first piece of stage i + 1. A parameter that several stages use (a tied embedding) is a
// parameter of each. Throws Errc::usage for a parameter that no piece has.
std::vector<Stage> make_stages(nn::Module& model, const std::vector<std::size_t>& cuts);

// Those of several stages, each once.
std::vector<std::pair<std::string, Variable>> parameters_of(const std::vector<Stage>& stages);

// What a stage can begin with: a piece that learns, and those up to the next such one. The first layer begins with the
// first piece.
struct Layer {
  std::size_t piece = 0;  // its first
  std::string name;       // of that
  double seconds = 0;     // of a forward pass
};
// With the times of an input's passes, the fastest of three. Times differ from rank to rank: one of them measures.
std::vector<Layer> measured_layers(nn::Module& model, const Tensor& input);
// The first layer of each stage but the first. Throws Errc::usage for a cut within a layer.
std::vector<std::size_t> layer_cuts(const std::vector<Layer>& layers, const std::vector<std::size_t>& cuts);
// The first piece of each stage but the first, from its layer.
std::vector<std::size_t> piece_cuts(const std::vector<Layer>& layers, const std::vector<std::size_t>& cuts);

// The cuts before the named pieces. Throws Errc::usage for a name that is not there or out of order, and for a number
// of names that makes another number of stages.
std::vector<std::size_t> cuts_at(nn::Module& model, const std::vector<std::string>& names, std::size_t stages);
// Cuts so that the longest stage takes as little time as it can. Throws Errc::usage for too few layers.
std::vector<std::size_t> measured_cuts(const std::vector<Layer>& layers, std::size_t stages);

}  // namespace ddprun::pipeline
