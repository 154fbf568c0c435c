#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/train_config.h"

// The layouts that `plan --world_size` compares. Pure functions.
namespace ddprun::trainer {

// The division of the work among the ranks of a job: the sizes of mesh_axes(), and what parallel.zero divides of the
// state.
struct Layout {
  int data = 1;
  std::map<std::string, int, std::less<>> axes;  // those of several ranks besides data, by name
  std::int64_t zero = 0;

  int ranks_on(std::string_view axis) const {
    const auto found = axes.find(axis);
    return found == axes.end() ? 1 : found->second;
  }
  bool operator==(const Layout&) const = default;
};
// Returns a text such as "data 2 x tensor 2 x pipeline 2" or "data 8, zero 1".
std::string to_string(const Layout& layout);

// Returns the factorisations of the ranks on the axes that the job's model has something for, and with each stage of
// ZeRO where there are replicas of a part of the model: first those with one axis beside data, then products of several
// axes, in which at most most_neighbours ranks exchange in every layer.
inline constexpr int most_neighbours = 8;
std::vector<Layout> layouts_of(const TrainConfig& config, int ranks);
// Returns the job with this layout, and the samples of a step that it has with only data parallelism. A pipeline
// without parallel.micro_batches has four for each stage, or as many as samples.
TrainConfig with_layout(const TrainConfig& config, const Layout& layout);

}  // namespace ddprun::trainer
