#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/nn/module.h"

namespace ddprun::pipeline {

// A part of a model: pieces (nn::Module::pieces()) that compute one after the other.
//
// Ownership: the model outlives it. Threads: those of the model's modules.
struct Stage {
  int number = 0;
  std::vector<nn::Module::Piece> pieces;
  std::vector<std::pair<std::string, Variable>> parameters;  // those that it uses, as the model names and orders them
  std::vector<std::pair<std::string, Tensor>> buffers;

  Variable operator()(const Variable& input) const;
};

// Cuts a model: cuts[i] is the first piece of stage i + 1. A parameter that several stages use (a tied embedding) is a
// parameter of each. Throws Errc::usage for a parameter that no piece has.
std::vector<Stage> make_stages(nn::Module& model, const std::vector<std::size_t>& cuts);

// Returns the parameters of several stages, each once.
std::vector<std::pair<std::string, Variable>> parameters_of(const std::vector<Stage>& stages);

// A unit at which a stage can begin: a piece that learns, and the pieces up to the next such one. The first layer
// begins with the first piece.
struct Layer {
  std::size_t piece = 0;  // its first
  std::string name;       // the name of that piece
  double seconds = 0;     // time of a forward pass
};
// Returns the layers, without times.
std::vector<Layer> layers_of(nn::Module& model);
// Returns the layers with the times of an input's passes, the fastest of three. Times differ by rank: one's count.
std::vector<Layer> measured_layers(nn::Module& model, const Tensor& input);
// Returns the first layer of each stage but the first. Throws Errc::usage for a cut within a layer.
std::vector<std::size_t> layer_cuts(const std::vector<Layer>& layers, const std::vector<std::size_t>& cuts);
// Returns the first piece of each stage but the first, from its layer.
std::vector<std::size_t> piece_cuts(const std::vector<Layer>& layers, const std::vector<std::size_t>& cuts);

// Returns the cuts before the named pieces. Throws Errc::usage for a name that is not there or out of order, and for a
// number of names that makes another number of stages.
std::vector<std::size_t> cuts_at(nn::Module& model, const std::vector<std::string>& names, std::size_t stages);
// Cuts so that the longest stage takes as little time as possible. Throws Errc::usage for too few layers.
std::vector<std::size_t> measured_cuts(const std::vector<Layer>& layers, std::size_t stages);

}  // namespace ddprun::pipeline
