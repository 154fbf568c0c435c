#include "worker/parallel/forms/pipeline/stage.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/parallel/forms/pipeline/model_split.h"
#include "worker/tensor/shape_only.h"

namespace ddprun::pipeline {
namespace {

using Piece = nn::Module::Piece;

bool are_one(const Variable& a, const Variable& b) {
  return a.is(b);
}
bool are_one(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage();
}

// Returns those of the model's parameters or buffers that the pieces have, as the model names them. named: a member
// function of Module that lists them.
template <class Named>
Named used_by(const std::vector<Piece>& pieces, const nn::Module& model, Named (nn::Module::*named)() const) {
  Named own;
  for (const Piece& piece : pieces)
    for (const nn::Module* module : piece.modules)
      for (auto& each : (module->*named)()) own.push_back(std::move(each));
  Named all = (model.*named)();
  std::erase_if(all, [&](const auto& each) {
    return std::ranges::none_of(own, [&](const auto& mine) { return are_one(mine.second, each.second); });
  });
  return all;
}

void check_complete(const nn::Module& model, const std::vector<Stage>& stages) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    const auto uses = [&](const Stage& stage) {
      return std::ranges::any_of(stage.parameters, [&](const auto& each) { return each.second.is(parameter); });
    };
    if (std::ranges::none_of(stages, uses))
      throw make_error(Errc::usage, "the model cannot be cut: {} belongs to none of its pieces", name);
  }
}

std::vector<std::string> names_of(const std::vector<Piece>& pieces) {
  std::vector<std::string> names;
  for (const Piece& piece : pieces) names.push_back(piece.name);
  return names;
}

// Returns where a stage may begin, with the first piece of all: at pieces with parameters, after one that has some.
// Pieces in between, such as an activation, stay with its layer.
std::vector<std::size_t> places(const std::vector<Piece>& pieces) {
  std::vector<std::size_t> all{0};
  bool is_first = true;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const bool learns = std::ranges::any_of(pieces[p].modules, [](const nn::Module* module) {
      return std::ranges::any_of(module->named_parameters(),
                                 [](const auto& each) { return each.second.requires_grad(); });
    });
    if (learns && !std::exchange(is_first, false)) all.push_back(p);
  }
  return all;
}

// Returns a time that passes with computation: where that is left out, with its number of operations.
double now() {
  constexpr double seconds_of_operation = 1e-11;
  if (shapes_only()) return operations_left_out() * seconds_of_operation;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void time_pieces(const std::vector<Piece>& pieces, const Tensor& input, std::vector<double>& seconds) {
  Variable value(input);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const double start = now();
    value = pieces[p].run(value);
    seconds[p] = std::min(seconds[p], now() - start);
  }
}

}  // namespace

Variable Stage::operator()(const Variable& input) const {
  Variable value = input;
  for (const Piece& piece : pieces) value = piece.run(value);
  return value;
}

std::vector<Stage> make_stages(nn::Module& model, const std::vector<std::size_t>& cuts) {
  auto pieces = model.pieces();
  std::vector<Stage> stages(cuts.size() + 1);
  for (std::size_t s = 0, next = 0; s < stages.size(); ++s) {
    Stage& stage = stages[s];
    stage.number = static_cast<int>(s);
    const std::size_t end = s < cuts.size() ? cuts[s] : pieces.size();
    while (next < end) stage.pieces.push_back(std::move(pieces.at(next++)));
    stage.parameters = used_by(stage.pieces, model, &nn::Module::named_parameters);
    stage.buffers = used_by(stage.pieces, model, &nn::Module::named_buffers);
  }
  check_complete(model, stages);
  return stages;
}

std::vector<std::pair<std::string, Variable>> parameters_of(const std::vector<Stage>& stages) {
  std::vector<std::pair<std::string, Variable>> all;
  for (const Stage& stage : stages)
    for (const auto& each : stage.parameters)
      if (std::ranges::find(all, each.first, &std::pair<std::string, Variable>::first) == all.end())
        all.push_back(each);
  return all;
}

std::vector<std::size_t> cuts_at(nn::Module& model, const std::vector<std::string>& names, std::size_t stages) {
  const auto all = names_of(model.pieces());
  if (names.size() + 1 != stages)
    throw make_error(Errc::usage, "{} pieces are named for {} stages: each but the first begins with one", names.size(),
                     stages);
  std::vector<std::size_t> cuts;
  for (const auto& name : names) {
    const auto found = std::ranges::find(all, name);
    const auto at = static_cast<std::size_t>(found - all.begin());
    if (found == all.end() || at == 0 || (!cuts.empty() && at <= cuts.back()))
      throw make_error(Errc::usage, "{} is not among the pieces of the model after the first, or out of order: {}",
                       name, fmt::join(all, ", "));
    cuts.push_back(at);
  }
  return cuts;
}

std::vector<Layer> layers_of(nn::Module& model) {
  const auto pieces = model.pieces();
  std::vector<Layer> layers;
  for (const std::size_t place : places(pieces)) layers.push_back({.piece = place, .name = pieces[place].name});
  return layers;
}

std::vector<Layer> measured_layers(nn::Module& model, const Tensor& input) {
  const auto pieces = model.pieces();
  const NoGradScope no_grad;
  const bool trains = model.training();
  model.train(false);
  std::vector<double> seconds(pieces.size(), std::numeric_limits<double>::infinity());
  for (int i = 0; i < 3; ++i) time_pieces(pieces, input, seconds);
  model.train(trains);
  auto layers = layers_of(model);
  for (std::size_t p = 0; p < pieces.size(); ++p)
    std::prev(std::ranges::upper_bound(layers, p, {}, &Layer::piece))->seconds += seconds[p];
  return layers;
}

std::vector<std::size_t> layer_cuts(const std::vector<Layer>& layers, const std::vector<std::size_t>& cuts) {
  std::vector<std::size_t> all;
  for (const std::size_t cut : cuts) {
    const auto found = std::ranges::find(layers, cut, &Layer::piece);
    if (found == layers.end())
      throw make_error(Errc::usage, "stages that are balanced begin with one of the layers that learn: {}",
                       fmt::join(layers | std::views::transform(&Layer::name), ", "));
    all.push_back(static_cast<std::size_t>(found - layers.begin()));
  }
  return all;
}

std::vector<std::size_t> piece_cuts(const std::vector<Layer>& layers, const std::vector<std::size_t>& cuts) {
  std::vector<std::size_t> all;
  for (const std::size_t layer : cuts) all.push_back(layers.at(layer).piece);
  return all;
}

std::vector<std::size_t> measured_cuts(const std::vector<Layer>& layers, std::size_t stages) {
  if (layers.size() < stages)
    throw make_error(Errc::usage, "the model has {} piece{} with parameters for {} stages", layers.size(),
                     layers.size() == 1 ? "" : "s", stages);
  std::vector<double> costs;
  for (const Layer& layer : layers) costs.push_back(layer.seconds);
  return piece_cuts(layers, cut_evenly(costs, stages));
}

}  // namespace ddprun::pipeline
